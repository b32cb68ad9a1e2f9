package sluice_test

import (
	"testing"
	"unsafe"

	"github.com/sluice-go/sluice"
)

// Acquire makes a permit for each call: beyond 64 bytes it takes a quarter longer.
func TestPermitIsSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("its layout is for 64 bits")
	}
	if size := unsafe.Sizeof(sluice.Permit{}); size > 64 {
		t.Errorf("it takes %d bytes", size)
	}
}
