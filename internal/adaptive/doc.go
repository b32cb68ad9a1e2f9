// Package adaptive finds the limit of a server from the replies to its calls.
//
// # How can a rate be found that is not published?
//
// A congested network only says that it is congested. A rate limiter says more: a refusal
// means that the allowance was used up at that instant. Between two such instants the
// server granted its rate × the time, whatever the pace of the calls was. So the rate
// need not be hunted by halving and growing; it can be measured from refusal to refusal,
// with an error of one call:
//
//	granted     refused at 3.0 s           refused at 8.0 s
//	   |            x after 41 calls           x after 141 calls
//	   +------------+--------------------------+---------------> time
//	                (141 − 41) ÷ 5 s = 20 calls per second
//
// The pace then stays a little below that rate for some calls, a little above it for some
// more, and only then doubles, because the server may have become faster. A refusal there
// costs one call and is the next measurement.
//
// # What else refuses?
//
//   - A window grants the same number at any pace ([Windowed]).
//   - A server that bans its clients, or asks for a pause of a minute, makes each refusal
//     costly. The rate is then bounded from both sides, with as few refusals as possible
//     ([Bounding]).
//   - A cap on calls in flight refuses above a number, not above a pace ([Capped]).
//   - An overloaded server gets slow before it refuses ([Slowed]).
//   - Some servers refuse at random; one refusal where none was expected changes nothing.
//
// A [Controller] is the state of all that. Like the rules of this module it takes the
// time as an argument, has no lock, starts no goroutine and reads no clock. Its cost is in
// the units of the server's limit: calls, or whatever a call costs.
//
// Each file has one idea: ledger.go measures, estimate.go makes a rate of that, cycle.go measures
// in spite of pauses, pace.go turns a rate into a pace and slot.go that into instants, bounds.go
// keeps to the configuration, crowd.go begins without a pace and takeover.go late,
// blockage.go asks a server that refuses when it will grant again, costly.go bounds a rate by few
// refusals, and patient.go by still fewer, window.go, capacity.go and latency.go recognize other
// limits, chance.go ignores rejections without meaning, trial.go finds out whether the pace matters,
// suspect.go finds the unit that is limited
// where calls take of several, peers.go and peer.go share what was learned with other processes,
// service.go tells an incident from a limit, refill.go uses the remaining quota in responses,
// belief.go reports it and snapshot.go restores it. controller.go leads a call through them, and
// act.go changes what is believed.
//
// # Who writes what?
//
// The parts of a Controller are written by the files that declare them, and its own fields by
// these. A field of a part stands here if another file writes it: to begin anew, to restore what
// was known, or because two ideas meet.
//
//	act.go         phase, epoch, why, changed, changes
//	slot.go        next, late
//	controller.go  began, meanCost, asked, started, recent, at, until, answer, refusal,
//	               refusals, ignored, capacity.held, costly.start, ledger.sent, pace.now,
//	               pace.refusals, service.begin, window.used
//	blockage.go    blockage, blocked, until, resumed, costly.price, costly.start, cycles.found,
//	               sharing.told, sharing.until
//	bounds.go      Config.Max, Config.MaxConcurrency, pace.now
//	capacity.go    pace.now, pace.quiet
//	costly.go      blockage.quiet, cycles.past, window
//	crowd.go       crowd, answer, latency, ledger.earlier, ledger.recent, pace.now
//	estimate.go    pace.low, pace.lows, pace.nudges, pace.refuted, pace.shown, pace.shows, pace.unsure
//	latency.go     capacity.held, capacity.limit, pace.rate
//	pace.go        crowd.hold
//	patient.go     blockage.gap, blockage.polls, costly.hold, costly.low
//	peers.go       at, meanCost, refusal, costly.before, costly.burst, costly.cheaps, costly.high,
//	               costly.hold, costly.looking, costly.low, costly.measured, costly.price, costly.slow,
//	               costly.start, ledger.sent, pace.calls, pace.quiet, pace.refuted, pace.rise, pace.span,
//	               pace.unsure, point.granted
//	refill.go      at, pace.now, pace.unsure
//	service.go     costly, blockage.quiet, costly.credit, costly.looking, costly.start
//	snapshot.go    meanCost, refusal, capacity.entry, capacity.limit, costly.high,
//	               costly.hold, costly.low, costly.price, pace.quiet, pace.refuted
//	suspect.go     at, costly, pace, window, Call.epoch, Call.pace, chance.suspect, pace.now,
//	               window.used
//	takeover.go    at, past, answer, other, ledger.sent, service.begin
//	window.go      blockage.gap
package adaptive
