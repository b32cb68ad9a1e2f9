// Package guess is above programs that a newcomer wrote before reading anything, with the habits
// of net/http, log/slog and golang.org/x. They must go on compiling as they are. What others of
// them assume, and why that is not so, is in docs/decisions.md.
package guess
