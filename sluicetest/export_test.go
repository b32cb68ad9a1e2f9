package sluicetest

// ErrRefused is the cause of a dial that is refused.
var ErrRefused error = errRefused
