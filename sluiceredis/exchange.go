package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
)

var exchange = script("peers")

// A Store is the [peers.Store] of gates that find their limit automatically.
var _ peers.Store = (*Store)(nil)

// mostNews is the maximum number of numbers in an update.
const mostNews = 64

const (
	// groupLasts is the time for which a gate is in a group without a report, and groupKeeps the
	// time for which a group is kept after its last one: as in package peers.
	groupLasts = 3 * time.Second
	groupKeeps = 10 * time.Minute
)

// Exchange makes s a [peers.Store], for sluice.Adaptive.Peers: gates of one name, prefix and Redis
// share the learned limit. With [InProcess], gates of one name in this store do.
//
// The gates call Exchange themselves. It runs one script, whose cost grows with the number of
// processes. A gate that is closed, not used for a second, or has not reported for 3 s is not part
// of the group. Learned limits are kept for 10 min after the last report.
//
// While the server does not answer, gates learn alone: OnOutage and Strict do not apply. Exchange
// returns an error if the report is invalid, or the server does not answer.
func (s *Store) Exchange(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
	if err := checkReport(r); err != nil {
		return peers.Reply{}, fmt.Errorf("sluiceredis: exchange of group %q: %w", group, err)
	}
	if s.alone {
		if err := ctx.Err(); err != nil {
			return peers.Reply{}, err
		}
		return s.groups.Exchange(s.elapsed().Microseconds(), group, r), nil
	}
	args := []string{
		r.ID, format(r.Want), format(r.Admitted), format(r.Use), format(r.Seen),
		format(groupLasts.Microseconds()), format(groupKeeps.Milliseconds()),
	}
	for _, n := range r.News {
		args = append(args, format(n))
	}
	reply, err := s.run(ctx, exchange, []string{s.key("peers1", "learned", group, "")}, args)
	if err != nil {
		return peers.Reply{}, err
	}
	if len(reply) < 8 {
		return peers.Reply{}, expect(exchange, reply, 8)
	}
	for _, n := range []int64{reply[1], reply[2], reply[3], reply[6]} {
		if n < 0 || n > 1<<53 { // a gate would believe it
			return peers.Reply{}, fmt.Errorf("sluiceredis: exchange of group %q: the server replied an impossible number, %d", group, n)
		}
	}
	got := peers.Reply{
		Peers: reply[1], Share: reply[2], Due: reply[3], Admitted: reply[4],
		Stamp: reply[5], Age: time.Duration(reply[6]) * time.Microsecond,
	}
	if news := reply[7 : len(reply)-1]; len(news) > 0 {
		got.News = news
	}
	return got, nil
}

func checkReport(r peers.Report) error {
	for _, n := range append([]int64{r.Admitted, r.Use, r.Seen, r.Want - peers.Leaves}, r.News...) {
		if n < 0 || n > 1<<53 {
			return fmt.Errorf("a number of the report, %d, is not from 0 to 2⁵³", n)
		}
	}
	switch {
	case r.ID == "":
		return errors.New("the report has no ID")
	case len(r.News) > mostNews:
		return fmt.Errorf("%d numbers of news: at most %d are possible", len(r.News), mostNews)
	}
	return nil
}
