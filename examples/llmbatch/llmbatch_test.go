package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/batch"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

var binary string // the program, see package built

func TestMain(m *testing.M) { os.Exit(built.Test(m, "llmbatch", &binary, main)) }

// try makes a run at full speed, in virtual time. change may change the trial before.
func try(t *testing.T, name string, v vendor, n int, change func(*trial)) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(v, 1)
		defer api.Close()
		tr := &trial{
			options: options{vendor: v, n: n, workers: 64}, name: name, api: api,
			base: api.Transport(), url: "http://api.test",
			stop: &interrupts{stop: make(chan struct{}), calls: t.Context()},
		}
		tr.base.MaxIdleConnsPerHost = 64
		defer tr.base.CloseIdleConnections()
		if change != nil {
			change(tr)
		}
		var err error
		if r, err = tr.run(); err != nil {
			t.Fatal(err)
		}
		if tr.log != nil {
			if err := tr.log.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Logf("%s with %s: %d of %d ok, %d requests, %d throttled, %.1f s, %.1f %% of the ideal", titles[name], v.sdk,
		r.OK, r.Items, r.Requests, r.Throttled, r.Took, 100*r.Ideal/r.Took)
	if r.Took < r.Ideal {
		t.Errorf("%.1f s is less than the server allows, %.1f s", r.Took, r.Ideal)
	}
	return r
}

// The table of the program at full speed, without waiting for it. Nothing about the server
// is configured, and the goals are those of the README.
func TestTrial(t *testing.T) {
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			through := try(t, viaSluice, v, 500, nil)
			if through.OK != 500 || through.Throttled > 2 || through.Ideal < 0.97*through.Took {
				t.Errorf("through Sluice: %+v", through)
			}
			for _, name := range []string{sdkAlone, sdkRetries} {
				if r := try(t, name, v, 200, nil); r.OK+r.failed != 200 || r.OK > 100 || r.Throttled < r.failed || r.first == nil {
					t.Errorf("%s: %+v", r.name, r)
				}
			}
		})
	}
}

// The server allows what it says: a burst, and then a steady rate.
func TestTrial_OneByOne(t *testing.T) {
	r := try(t, sdkAlone, openAI, 30, func(tr *trial) { tr.workers = 1 })
	if r.OK != 30 || r.Requests != 30 || r.Throttled != 0 {
		t.Errorf("%+v", r)
	}
	var used int64
	took := 0.0
	for prompt := range prompts(30) {
		in, out := tokensIn(prompt), tokensIn(completion(prompt))
		if in < 500 || in > 1110 || out < 100 || out > 500 {
			t.Errorf("a prompt of %d tokens, a completion of %d", in, out)
		}
		used += in + out
		took += float64(out)/tokensPerSecond + latency.Seconds()
	}
	if r.used != used || r.Took < took-1e-6 || r.Took > took+1e-6 {
		t.Errorf("%d tokens in %v s, want %d in %v s", r.used, r.Took, used, took)
	}
}

// What is in the log is not made again, and what was in flight is.
func TestTrial_Resume(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.jsonl")
	logged := func(mode batch.Mode, tr *trial) {
		var err error
		if tr.log, err = batch.OpenLog(name, batch.LogConfig{Mode: mode}); err != nil {
			t.Fatal(err)
		}
	}
	first := try(t, viaSluice, openAI, 60, func(tr *trial) {
		logged(batch.Fresh, tr)
		ctx, cancel := context.WithCancel(tr.stop.calls)
		tr.stop.calls = ctx
		time.AfterFunc(20*time.Second, cancel)
	})
	if first.OK == 0 || first.OK >= 60 || first.failed != 0 || first.Took != 20 {
		t.Fatalf("%+v", first)
	}
	second := try(t, viaSluice, openAI, 60, func(tr *trial) { logged(batch.ResumeFailed, tr) })
	if second.OK != 60 || second.skipped != first.OK {
		t.Errorf("%+v after %d", second, first.OK)
	}
}
