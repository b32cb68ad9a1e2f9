package sluicegrpc

// Exhausted returns the unit of the limit that has refused a call, by a QuotaFailure.
var Exhausted = exhausted
