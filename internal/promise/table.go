package promise

// Promises are the rows.
var Promises = []Promise{
	{"one_admission", "One admission.", oneAdmission},
	{"exact_cancellation", "Exact cancellation.", exactCancellation},
	{"first_come", "First come, first served.", firstCome},
	{"changes", "Changes reach waiting callers.", changes},
	{"never_early", "Never during a pause.", neverEarly},
	{"no_herd", "No herd.", noHerd},
	{"never_hopeless", "No hopeless waits.", neverHopeless},
	{"true_to_rate", "True to the rate.", trueToRate},
	{"conservation", "Nothing is lost.", conservation},
	{"paid_retries", "Retries are paid for.", paidRetries},
	{"server_wait", "No longer than MaxServerWait.", serverWait},
}

// noRate and onePacer are why some features cannot meet some promises.
var (
	noRate   = map[string]string{"true_to_rate": "there is no rate to be true to"}
	onePacer = map[string]string{
		"one_admission": "a reservation is a claim on one pacer, which is one limit",
		"conservation":  "a pacer lends nothing that could be lost; what a cancelled reservation gives back is exact_cancellation",
		"paid_retries":  "a pacer makes no calls, and so no retries",
		"server_wait":   "a pacer makes no calls that a server answers",
	}
)

// Features are the columns.
var Features = []Feature{
	{Name: "bubble", Says: "a gate with a rate and a limit, in a testing/synctest bubble", Runs: []string{"."}},
	{Name: "real_clock", Says: "the same on the real clock", Runs: []string{".", "sluicehttp", "sluiceredis", "sluiceredis/rueidisclient"}, Real: true},
	{Name: "parent", Says: "both limits also in a parent", Runs: []string{"."}},
	{Name: "grandparent", Says: "three generations, each with other limits", Runs: []string{"."}},
	{Name: "quota", Says: "two quotas in this process", Runs: []string{"."}},
	{Name: "quota_far_away", Says: "a quota that is a round trip away, and one that is not", Runs: []string{"."}},
	{Name: "far_quota_parent", Says: "the same with a parent whose limits change meanwhile", Runs: []string{"."}},
	{Name: "cost", Says: "calls with a cost, limits that count it", Runs: []string{"."}},
	{Name: "costs", Says: "calls with amounts of two units, limits that count them, one in a parent", Runs: []string{"."}},
	{Name: "pause", Says: "a gate that is paused when the calls come", Runs: []string{"."}},
	{Name: "no_rate", Says: "no rate", Runs: []string{"."}, Never: noRate},
	{Name: "empty_retry_budget", Says: "a retry budget that is empty", Runs: []string{"."}},
	{Name: "deadline", Says: "a context with a deadline", Runs: []string{"."}},
	{Name: "acquire_within", Says: "AcquireWithin in place of Acquire and Do", Runs: []string{"."}},
	{Name: "reservation", Says: "a pacer whose slots are reserved", Runs: []string{"."}, Never: onePacer},
	{Name: "keyed", Says: "a gate of a Keyed, with a parent for all", Runs: []string{"."}},
	{Name: "shutdown", Says: "a sibling that was shut down while callers waited in it", Runs: []string{"."}},
	{Name: "rate_change", Says: "another rate and limit before", Runs: []string{"."}},
	{Name: "real_clock_grain", Says: "a grain of 20 ms on the real clock, where calls are woken together, and a parent", Runs: []string{"."}, Real: true},
	{Name: "grain", Says: "a grain of 20 ms in a bubble, where it has no effect", Runs: []string{"."}},
	{Name: "grain_parent", Says: "the same and a parent", Runs: []string{"."}},
	{Name: "grain_quota", Says: "the same and quotas", Runs: []string{"."}},
	{Name: "grain_cost", Says: "the same and costs", Runs: []string{"."}},
	{Name: "grain_pause", Says: "the same and a pause", Runs: []string{"."}},
	{Name: "grain_no_rate", Says: "the same and no rate", Runs: []string{"."}, Never: noRate},
	{Name: "grain_deadline", Says: "the same and a context with a deadline", Runs: []string{"."}},
	{Name: "grain_reservation", Says: "a pacer with a grain whose slots are reserved", Runs: []string{"."}, Never: onePacer},
	{Name: "grain_rate_change", Says: "a grain, and another rate and limit before", Runs: []string{"."}},
	{Name: "fine_grain", Says: "no grain, and a parent", Runs: []string{"."}},
	{Name: "costs_parent", Says: "amounts of two units, and limits of both in a gate and its parent", Runs: []string{"."}},
	{Name: "costs_quota_far_away", Says: "amounts of two units, one with a limit that is a round trip away", Runs: []string{"."}},
	{Name: "costs_pause", Says: "amounts of two units and a pause", Runs: []string{"."}},
	{Name: "costs_no_rate", Says: "amounts of two units and no rate", Runs: []string{"."}, Never: noRate},
	{Name: "costs_empty_retry_budget", Says: "amounts of two units and an empty retry budget", Runs: []string{"."}},
	{Name: "costs_deadline", Says: "amounts of two units and a context with a deadline", Runs: []string{"."}},
	{Name: "costs_acquire_within", Says: "amounts of two units and AcquireWithin", Runs: []string{"."}},
	{Name: "costs_keyed", Says: "amounts of two units, in a gate of a Keyed with a parent for all", Runs: []string{"."}},
	{Name: "costs_rate_change", Says: "amounts of two units, and another rate and limit before", Runs: []string{"."}},
	{Name: "costs_settled", Says: "amounts of two units that a call corrects when it ends, down and up", Runs: []string{"."}},
	{Name: "costs_exhausted", Says: "amounts of two units, and refusals that name one of them", Runs: []string{"."}},
	{Name: "grain_costs", Says: "a grain of 20 ms in a bubble, and amounts of two units", Runs: []string{"."}},
	{Name: "http_1", Says: "requests over HTTP/1.1", Runs: []string{"sluicehttp"}},
	{Name: "http_cost", Says: "requests that take tokens, settled when they end", Runs: []string{"sluicehttp"}},
	{Name: "http_no_rate", Says: "requests, and no rate", Runs: []string{"sluicehttp"}, Never: noRate},
	{Name: "http_2", Says: "requests over HTTP/2", Runs: []string{"sluicehttp"}},
	{Name: "grpc", Says: "calls of gRPC", Runs: []string{"sluicegrpc"}},
	{Name: "grpc_stream", Says: "streams of gRPC", Runs: []string{"sluicegrpc"}},
	{Name: "grpc_client_stream", Says: "streams of gRPC on which the client sends several messages", Runs: []string{"sluicegrpc"}},
	{Name: "grpc_cost", Says: "calls of gRPC that take tokens, settled when they end", Runs: []string{"sluicegrpc"}},
	{Name: "grpc_stream_cost", Says: "the same with streams, opened by their message", Runs: []string{"sluicegrpc"}},
	{Name: "redis", Says: "two quotas in a Redis", Runs: []string{"sluiceredis"}},
	{Name: "redis_away", Says: "the same while it is away and everything is let through", Runs: []string{"sluiceredis"}},
	{Name: "in_process", Says: "the same without a Redis", Runs: []string{"sluiceredis"}},
}
