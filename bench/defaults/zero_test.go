package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/window"
)

// zeros has the types that limit calls and are made by a constructor. Those of package sluiceredis are made by
// a Store, and a zero Transport works.
var zeros = []any{
	new(sluice.Gate), new(sluice.Keyed[string]), new(sluice.RetryLoop),
	new(semaphore.Weighted), new(pacer.Pacer), new(leaky.Bucket), new(leaky.Keyed[string]),
	new(window.Counter), new(window.Keyed[string]),
}

// A method of a zero value works, or panics with a message that names what makes one: nobody reads a stack to
// find out.
func TestZeroValues(t *testing.T) {
	for _, zero := range zeros {
		of := reflect.TypeOf(zero)
		panics := 0
		for i := range of.NumMethod() {
			name := of.String()[1:] + "." + of.Method(i).Name
			switch problem := callZero(reflect.New(of.Elem()).Method(i)); {
			case strings.HasPrefix(problem, "sluice: the zero "):
				panics++
			case problem != "" && name != "leaky.Keyed[string].TakeRate": // its arguments are no rate
				t.Errorf("%s: %s", name, problem)
			}
		}
		if panics == 0 {
			t.Errorf("%s: no method panics", of)
		}
	}
}

// callZero calls a method and returns how it panics, or "".
func callZero(method reflect.Value) (problem string) {
	defer func() {
		if r := recover(); r != nil {
			problem = fmt.Sprint(r)
		}
	}()
	method.Call(anyArguments(method.Type()))
	return ""
}

// anyArguments returns arguments for a function.
func anyArguments(of reflect.Type) (args []reflect.Value) {
	n := of.NumIn()
	if of.IsVariadic() {
		n--
	}
	for i := range n {
		switch in := of.In(i); {
		case in == reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(context.Background()))
		case in.Kind() == reflect.Int64:
			args = append(args, reflect.ValueOf(int64(1)).Convert(in))
		case in.Kind() == reflect.Func:
			args = append(args, reflect.MakeFunc(in, func([]reflect.Value) (out []reflect.Value) {
				for i := range in.NumOut() {
					out = append(out, reflect.Zero(in.Out(i)))
				}
				return out
			}))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	return args
}
