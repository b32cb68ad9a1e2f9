// Package alarm sleeps for a short time and wakes up exactly, where the
// operating system can.
//
// # Why is a timer not good enough, and what is?
//
// A Go timer on Linux fires up to 1 ms late: an idle program waits in the
// kernel's epoll_wait, whose timeout is whole milliseconds. Measured on an AMD
// EPYC, for one caller each millisecond on two cores, medians of three times 4 s
// (late: after the instant asked for; uneven: the error of the gaps between calls):
//
//	                        late p50   p99    uneven p99   CPU
//	a timer                 547 µs  1112 µs   1000 µs      4.4 %
//	a blocking nanosleep     96 µs   153 µs     66 µs      7.1 %
//	a timerfd that is read   46 µs   159 µs    317 µs      6.8 %
//	the same as below        47 µs   107 µs    257 µs      3.4 %
//
// A nanosleep is more even, because it is always late by the kernel's timer slack
// of 50 µs and more. But that is a whole interval at 20,000 per second; and it is a
// system call that takes a thread for as long as it lasts, and twice the processor
// time. A timerfd is a file that becomes readable at an instant, exactly, and that
// the runtime waits for in the same epoll_wait as for every other file: the
// goroutine is parked like one that reads from a socket, and no thread sleeps.
//
// A reader of a file cannot wait for channels at the same time. So a caller
// waits on a timer and its channels until [Reach] before the instant, and here
// for the rest; what happens meanwhile it sees up to Reach late.
package alarm

import "time"

// Reach is how long a Sleep is worth while: longer than a timer is late.
const Reach = 1500 * time.Microsecond
