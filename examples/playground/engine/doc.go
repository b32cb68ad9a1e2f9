// Package engine computes the pictures of the playground: the same calls through a
// [sluice.Gate] and through golang.org/x/time/rate with golang.org/x/sync/semaphore,
// against one simulated server, in virtual time. The limiters are the real ones, not
// models of them. A picture is the same on each machine, and in a browser.
package engine
