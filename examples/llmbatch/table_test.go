package main

import (
	"errors"
	"strings"
	"testing"
)

func TestWriteTable(t *testing.T) {
	var b strings.Builder
	err := writeTable(&b, options{vendor: openAI, n: 500, workers: 64, fast: true}, []result{
		{name: sdkAlone, OK: 35, Items: 500, Requests: 1455, Throttled: 1420, Took: 22.64, Ideal: 11.4, used: 21433, failed: 465, first: errors.New("429")},
		{name: viaSluice, OK: 500, Items: 500, Requests: 501, Throttled: 1, Took: 345.96, Ideal: 341.3, used: 351259},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `500 completions with openai-go and 64 goroutines. The server allows 500 requests (burst 83)
and 60,000 tokens (burst 10,000) per minute. Everything ran 60 times as fast; the times
are those of the full speed.

                                  SDK alone   through Sluice
completions                              35              500
failed                                  465                0
requests                              1,455              501
  throttled (429)                     1,420                1
tokens used                          21,433          351,259
time                                 22.6 s     5 min 46.0 s
ideal for these tokens               11.4 s     5 min 41.3 s
  reached                            50.4 %           98.7 %

SDK alone, the first failure:
	429
`
	if got := b.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// What was neither made nor failed has its own row.
func TestWriteTable_Interrupted(t *testing.T) {
	var b strings.Builder
	if err := writeTable(&b, options{vendor: openAI, n: 500}, []result{{name: viaSluice, OK: 270, Items: 500, failed: 1, Took: 9}}); err != nil {
		t.Fatal(err)
	}
	if !hasRow(b.String(), "interrupted", "229") || !hasRow(b.String(), "reached", "-") {
		t.Error(b.String())
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
