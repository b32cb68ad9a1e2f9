// Package limits has the words that all packages of Sluice share: how a rate is written
// ([Rate]), what a limit decides ([Result]), what a gate needs of a limit ([Limiter] and
// its extensions), what delays a call ([Cause]), and why it may not leave (the errors).
//
// Programs that only use limits need little of it: [Rate], [Must], [Never] and the
// errors. Authors of limits implement [Limiter].
package limits
