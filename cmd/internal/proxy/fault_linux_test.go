package proxy

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/sluicetest"
)

// With a full disk calls go on, the state before stays as it is, and is written when there is room.
func TestFault_DiskFull(t *testing.T) {
	folder := t.TempDir()
	if err := syscall.Mount("sluice", folder, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("a small disk needs root: %v", err)
	}
	defer syscall.Unmount(folder, 0)
	synctest.Test(t, func(t *testing.T) {
		h := build(t, &options{state: folder}, sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second}))
		learn := func() {
			for range 100 {
				if got := h.call("GET", "/api/", ""); got.StatusCode != 200 {
					t.Errorf("%d", got.StatusCode)
				}
			}
		}
		learn()
		if err := h.proxy.memory.save(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, learnedFile)
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		full := filepath.Join(folder, "full")
		if err := os.WriteFile(full, make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		learn()
		if err := h.proxy.memory.save(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a full disk: %v", err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != string(before) {
			t.Errorf("the state is damaged: %v", err)
		}
		if all, _ := os.ReadDir(folder); len(all) != 3 {
			t.Errorf("files were left over: %v", all)
		}
		os.Remove(full)
		learn()
		if err := h.proxy.memory.save(); err != nil {
			t.Error(err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) == string(before) {
			t.Errorf("the state was not written when there was room: %v", err)
		}
	})
}
