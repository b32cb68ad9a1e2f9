// Package trace records which functions a call enters, and in which order. House copies it
// into the module that it measures and makes each function there call [In].
package trace

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

// Variable is the name of the environment variable with the file to which records are
// appended. Without it nothing is recorded.
const Variable = "HOUSE_TRACE"

var file = os.Getenv(Variable)

// recorded is the goroutine that makes a call; empty: none. Only that goroutine uses record and
// depth.
var recorded atomic.Pointer[string]

var (
	record bytes.Buffer
	depth  int
)

// Call begins the record of a call that this goroutine makes. The returned function ends the
// record and writes it: a line "call", and for each function that was entered a line with its
// depth, its file and its name, separated by tabs. What other goroutines do is not recorded.
func Call() (end func()) {
	if file == "" {
		return func() {}
	}
	record.Reset()
	record.WriteString("call\n")
	depth = 0
	id := goroutine()
	recorded.Store(&id)
	return func() {
		recorded.Store(nil)
		if err := write(file, record.Bytes()); err != nil {
			panic(fmt.Sprintf("trace: %v", err))
		}
	}
}

func write(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if failed := f.Close(); err == nil {
		err = failed
	}
	return err
}

// In records that a function was entered. The returned function says that it has returned.
func In(file, function string) (left func()) {
	if id := recorded.Load(); id == nil || *id != goroutine() {
		return func() {}
	}
	depth++
	fmt.Fprintf(&record, "%d\t%s\t%s\n", depth, file, function)
	return func() { depth-- }
}

// goroutine returns the number of the goroutine that calls it, which only its stack trace has:
// "goroutine 7 [running]: …".
func goroutine() string {
	var buf [64]byte
	return string(bytes.Fields(buf[:runtime.Stack(buf[:], false)])[1])
}
