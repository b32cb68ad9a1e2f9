// Package alarm sleeps for a short time and wakes up exactly, where the
// operating system can.
//
// # Why is a timer not good enough, and what is?
//
// A Go timer on Linux fires up to 1 ms late: an idle program waits in the kernel's
// epoll_wait, whose timeout is whole milliseconds. Medians of three runs of 4 s, one
// caller each millisecond on two cores of an AMD EPYC (late: after the time asked for;
// uneven: the error of the gaps between calls):
//
//	                        late p50   p99    uneven p99   CPU
//	a timer                 547 µs  1112 µs   1000 µs      4.4 %
//	a blocking nanosleep     96 µs   153 µs     66 µs      7.1 %
//	a timerfd that is read   46 µs   159 µs    317 µs      6.8 %
//	this package             47 µs   107 µs    257 µs      3.4 %
//
// A nanosleep is more even, because it is always late by the kernel's timer slack of
// 50 µs and more. But that is a whole interval at 20,000 per second, the system call
// blocks a thread, and it takes twice the processor time. A timerfd is a file that
// becomes readable at an exact time, and for which the runtime waits in the same
// epoll_wait as for every other file: the goroutine is parked like one that reads from a
// socket, and no thread sleeps.
//
// A goroutine that waits for a file cannot wait for channels at the same time. So a
// caller waits on a timer and its channels until [Reach] before the time, and here for
// the rest; it sees events up to Reach late.
package alarm

import "time"

// Reach is how long a Sleep is worth while: longer than a timer is late.
const Reach = 1500 * time.Microsecond
