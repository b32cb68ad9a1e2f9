// Package sluicetest is a server in memory on which to try a client of other
// people's rate-limited APIs: it enforces limits exactly, breaks in whatever way
// a test asks for, and keeps a record by which the client is judged.
package sluicetest
