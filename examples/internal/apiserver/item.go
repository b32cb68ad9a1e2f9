package apiserver

import (
	"fmt"
	"time"
)

// Item is what GET /items/{id} answers: one article of a stock list. It
// depends on the id alone, so two runs over the same ids must agree.
type Item struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Depot string `json:"depot"`
	Stock int    `json:"stock"`
	Cents int    `json:"cents"`
}

var (
	materials = [...]string{"brass", "oak", "granite", "copper", "linen", "cedar", "steel", "glass", "cork", "slate", "bronze"}
	articles  = [...]string{"hinge", "valve", "lantern", "pulley", "basin", "bracket", "gauge", "ladder", "funnel", "anvil", "crate", "lever", "spindle"}
	depots    = [...]string{"Aarhus", "Bergen", "Cork", "Delft", "Evora", "Fribourg", "Gdansk"}
)

// ItemOf returns the item of an id.
func ItemOf(id int) Item {
	m := mix(id)
	return Item{
		ID:    id,
		Name:  fmt.Sprintf("%s %s No. %d", materials[m%uint64(len(materials))], articles[m>>8%uint64(len(articles))], id),
		Depot: depots[m>>16%uint64(len(depots))],
		Stock: int(m >> 24 % 500),
		Cents: 95 + int(m>>36%20_000),
	}
}

// latencyOf is the time the server works on an item: 20 to 40 ms, by the id.
func latencyOf(id int) time.Duration {
	return 20*time.Millisecond + time.Duration(mix(id)>>40%20_001)*time.Microsecond
}

// mix spreads neighbouring ids over all 64 bits (the finaliser of splitmix64).
func mix(id int) uint64 {
	z := uint64(id) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Every faultEvery-th id fails once: 1 % of a thousand. The first of them
// comes early so that a run over a few dozen items meets one as well.
const (
	faultEvery = 97
	faultFirst = 13
)

// faulty reports whether the first call for an id is answered 503. The last tenth of the
// items is spared: a retry after everything else is done would measure the time that a
// client waits between attempts, not how it paces them.
func faulty(id, items int) bool {
	return id%faultEvery == faultFirst && id < items-(items+9)/10
}
