package sluicegrpc

// ThrottledBy returns the unit of the limit that has rejected a call, by a QuotaFailure.
var Exhausted = exhausted
