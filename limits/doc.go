// Package limits has the words that all packages of Sluice share: how a rate is written ([Rate]),
// the decision of a limit ([Result]), the interface of limits ([Limiter] and its extensions), the
// cause of a delay ([Cause]), and the errors.
//
// Authors of limits implement [Limiter].
package limits
