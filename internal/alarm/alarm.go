// Package alarm sleeps for a short time and wakes up exactly, where the
// operating system can.
//
// # Why is a timer not good enough, and what is?
//
// A Go timer on Linux fires up to 1 ms late: an idle program waits in the
// kernel's epoll_wait, whose timeout is whole milliseconds. Measured, for one
// caller each millisecond on two cores (late: after the instant asked for;
// uneven: the error of the gaps between calls):
//
//	                        late p50   p99    uneven p99   CPU
//	a timer                 536 µs  1082 µs   1000 µs      2.9 %
//	a blocking nanosleep     75 µs   199 µs    377 µs      3.2 %
//	a timerfd                29 µs    86 µs    189 µs      3.2 %
//
// A nanosleep in a system call of our own also takes a thread for as long as
// it lasts, and its wake-ups are late by the kernel's timer slack of 50 µs. A
// timerfd is a file that becomes readable at an instant, exactly, and that the
// runtime waits for in the same epoll_wait as for every other file: the
// goroutine is parked like one that reads from a socket, and no thread sleeps.
//
// A reader of a file cannot wait for channels at the same time. So a caller
// waits on a timer and its channels until [Reach] before the instant, and here
// for the rest; what happens meanwhile it sees up to Reach late.
package alarm

import "time"

// Reach is how long a Sleep is worth while: longer than a timer is late.
const Reach = 1500 * time.Microsecond
