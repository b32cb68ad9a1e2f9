// Package sched runs real code with a scheduler of its own and enumerates the interleavings of its
// goroutines. The code is rewritten before it is compiled (package overlay), so that each operation on
// an atomic variable, a mutex or a channel, and each start of a goroutine, calls this package. No
// program imports it but [github.com/sluice-go/sluice/internal/explore].
//
// # How are interleavings enumerated?
//
// An execution is a sequence of choices: which goroutine performs its next operation. One goroutine
// runs at a time, as a coroutine, so the same choices give the same execution. The search is
// stateless (Godefroid, Model Checking for Programming Languages using VeriSoft, 1997): it keeps the
// choices of the last execution, changes the last one that can be changed, and runs the scene again.
// There are two ways to bound it:
//
//   - Dynamic partial-order reduction (Flanagan and Godefroid, Dynamic Partial-Order Reduction for
//     Model Checking Software, 2005) with sleep sets (Godefroid, Partial-Order Methods for the
//     Verification of Concurrent Systems, 1996). Two operations commute unless they act on one object
//     and one of them writes. Of executions that differ only in the order of operations that commute,
//     at least one is run. At a race all candidates of the paper are tried, not one of them: see race.
//   - A bound on preemptions (Musuvathi and Qadeer, Iterative Context Bounding for Systematic Testing
//     of Multithreaded Programs, 2007; CHESS): all executions in which a goroutine that could go on is
//     interrupted at most so often. No reduction is added to it: a bound and sleep sets together are not sound
//     (Coons, Musuvathi and McKinley, Bounded Partial-Order Reduction, 2013).
//
// States are not hashed: those of Go code, with goroutines and closures, have no hash.
//
// Time passes only when no goroutine can go on, up to the next timer, as in a testing/synctest
// bubble. All before that instant is ordered before all after it. Memory is sequentially consistent,
// as the Go memory model has it for programs without data races; the race detector looks for those.
package sched
