// Package oracle helps tests to replay recorded answers of other systems.
//
// A recording is a file of JSON lines, each a trace that stands for itself.
// The tests of a package read those in its testdata or, if the environment
// variable SLUICE_ORACLE_DIR is set, others of the same names in that directory.
package oracle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Dir is the environment variable that names another directory of recordings.
const Dir = "SLUICE_ORACLE_DIR"

// Lines returns the traces of the recording called name. The test fails if
// there are none.
func Lines(t testing.TB, name string) [][]byte {
	t.Helper()
	dir := os.Getenv(Dir)
	if dir == "" {
		dir = "testdata"
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, len(data)+1)
	for scanner.Scan() {
		if line := bytes.TrimSpace(scanner.Bytes()); len(line) > 0 {
			lines = append(lines, bytes.Clone(line))
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	if len(lines) == 0 {
		t.Fatalf("%s: no traces", name)
	}
	return lines
}

// Decode decodes a trace into v. Fields that v does not have are an error, because they
// would not be compared.
func Decode(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value in a line")
	}
	return nil
}

// A Corruption is a trace with one recorded value falsified.
type Corruption struct {
	What string // such as "remaining" or "cell 3"
	Line []byte
}

// Corruptions returns copies of a trace, in each of which one field of its
// operation number op, modulo their number, is wrong: a number one higher, a boolean
// reversed, a string changed, each element of a list on its own, and one unknown field.
func Corruptions(t testing.TB, line []byte, op int) []Corruption {
	t.Helper()
	var trace struct{ Ops []map[string]any }
	if err := json.Unmarshal(line, &trace); err != nil || len(trace.Ops) == 0 {
		t.Fatalf("not a trace: %v", err)
	}
	op %= len(trace.Ops)
	var all []Corruption
	add := func(what string, falsify func(fields map[string]any)) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var whole map[string]any
		if err := d.Decode(&whole); err != nil {
			t.Fatal(err)
		}
		falsify(whole["ops"].([]any)[op].(map[string]any))
		line, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Corruption{what, line})
	}
	for _, field := range slices.Sorted(maps.Keys(trace.Ops[op])) {
		list, ok := trace.Ops[op][field].([]any)
		if !ok {
			add(field, func(f map[string]any) { f[field] = falsified(t, f[field]) })
			continue
		}
		for i := range list {
			add(fmt.Sprint(field, " ", i), func(f map[string]any) {
				l := f[field].([]any)
				l[i] = falsified(t, l[i])
			})
		}
	}
	add("unheard of", func(f map[string]any) { f["unheard of"] = 1 })
	return all
}

func falsified(t testing.TB, v any) any {
	t.Helper()
	switch v := v.(type) {
	case bool:
		return !v
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			t.Fatal(err)
		}
		return n + 1
	case string:
		return v + "?"
	}
	t.Fatalf("cannot falsify %v", v)
	return nil
}
