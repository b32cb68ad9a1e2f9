//go:build !unix

package main

import "errors"

const keepVariable = "SLUICE_ZOO_KEEP"

// A kept is a program with a keeper. Here there is none.
type kept struct{}

func keep(string, []string) (*kept, error) { return nil, errors.ErrUnsupported }

func (*kept) stop()       {}
func (*kept) ended() bool { return true }
func (*kept) hangUp()     {}

func keepHere(string) {}
