package sluiceredis

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// altered is a client that runs another text of one script.
type altered struct {
	Client
	name          string
	before, after string
}

// Run implements Client.
func (a altered) Run(ctx context.Context, s *Script, keys, args []string) ([]int64, error) {
	if s.Name == a.name {
		s = newScript(s.Name, strings.Replace(s.Text, a.before, a.after, 1))
	}
	return a.Client.Run(ctx, s, keys, args)
}

// Scripts with a mistake in them are found out.
func TestSemaphoreWithAMistakeIsNot(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	for name, a := range map[string]altered{
		"one above the limit":      {before: "used + weight > limit", after: "used + weight > limit + 1"},
		"one below the limit":      {before: "used + weight > limit", after: "used + weight > limit - 1"},
		"tokens that fall":         {before: "math.max(last + 1, now)", after: "math.max(1, 1000 - last)"},
		"a token twice":            {before: "math.max(last + 1, now)", after: "math.max(last, 1)"},
		"renewed for too little":   {before: "token, lease) end", after: "token, lease / 4) end"},
		"released, and not freed":  {before: "used - l[1], true, true", after: "used, true, true"},
		"released twice as much":   {before: "used - l[1], true", after: "used - 2 * l[1], true"},
		"ends before it should":    {before: "keep(id, weight, token, lease)", after: "keep(id, weight, token, lease / 20)"},
		"asked twice, lent twice":  {before: "if l then -- asked", after: "if false then -- asked"},
		"taken back from a holder": {before: "used + weight > limit", after: "used + weight > limit and used > 3"},
	} {
		t.Run(name, func(t *testing.T) {
			if a.name = semaphoreScript.Name; !strings.Contains(semaphoreScript.Text, a.before) {
				t.Fatalf("the script does not contain %s", a.before)
			}
			alter := func(c Client) Client {
				b := a
				b.Client = c
				return b
			}
			began := time.Now()
			faults := whole
			if name == "asked twice, lent twice" {
				faults = briefly
			}
			if linearHistories(t, time.Minute, alter, faults) == nil {
				t.Error("it was not found out")
			}
			t.Logf("found out after %v", time.Since(began).Round(ms))
		})
	}
}

// The model itself: what is possible and what is not. The limit is 3.
func TestLenderModel(t *testing.T) {
	op := func(call, ret int64, what string, lease int, n, token int64) porcupine.Operation {
		return porcupine.Operation{Input: event{what, lease, n, 3, token}, Call: call, Return: ret}
	}
	const never = math.MaxInt64
	for _, v := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"three and no fourth", []porcupine.Operation{op(1, 2, "take", 1, 2, 5), op(3, 4, "take", 2, 1, 6), op(5, 6, "refused", 3, 1, 0)}, true},
		{"four of three", []porcupine.Operation{op(1, 2, "take", 1, 2, 5), op(3, 4, "take", 2, 2, 6)}, false},
		{"four of three at once", []porcupine.Operation{op(1, 9, "take", 1, 2, 5), op(1, 9, "take", 2, 2, 6)}, false},
		{"refused with room", []porcupine.Operation{op(1, 2, "take", 1, 2, 5), op(3, 4, "refused", 2, 1, 0)}, false},
		{"a token again", []porcupine.Operation{op(1, 2, "take", 1, 1, 5), op(3, 4, "take", 2, 1, 5)}, false},
		{"a lower token", []porcupine.Operation{op(1, 2, "take", 1, 1, 5), op(3, 4, "take", 2, 1, 4)}, false},
		{"a lower token at once", []porcupine.Operation{op(1, 4, "take", 1, 1, 5), op(3, 4, "take", 2, 1, 4)}, true},
		{"released and taken", []porcupine.Operation{op(1, 2, "take", 1, 3, 5), op(3, 4, "release", 1, 3, 5), op(5, 6, "take", 2, 3, 6)}, true},
		{"taken before it was released", []porcupine.Operation{op(1, 2, "take", 1, 3, 5), op(5, 6, "release", 1, 3, 5), op(3, 4, "take", 2, 3, 6)}, false},
		{"released without an answer", []porcupine.Operation{op(1, 2, "take", 1, 3, 5), op(3, never, "release", 1, 3, 5), op(5, 6, "refused", 2, 3, 0), op(7, 8, "take", 3, 3, 6)}, true},
		{"taken after the holder was told", []porcupine.Operation{op(1, 2, "take", 1, 3, 5), op(3, never, "end", 1, 3, 5), op(5, 6, "take", 2, 3, 6)}, true},
		{"taken before the holder was told", []porcupine.Operation{op(1, 2, "take", 1, 3, 5), op(5, never, "end", 1, 3, 5), op(3, 4, "take", 2, 3, 6)}, false},
		{"lent without an answer", []porcupine.Operation{op(1, never, "may take", 1, 3, 0), op(1, never, "may end", 1, 3, 0), op(3, 4, "refused", 2, 3, 0), op(5, 6, "take", 3, 3, 6)}, true},
		{"and never lent", []porcupine.Operation{op(1, never, "may take", 1, 3, 0), op(1, never, "may end", 1, 3, 0), op(3, 4, "take", 3, 3, 6)}, true},
		{"lent before anybody asked", []porcupine.Operation{op(5, never, "may take", 1, 3, 0), op(5, never, "may end", 1, 3, 0), op(3, 4, "refused", 2, 3, 0)}, false},
	} {
		if got := porcupine.CheckOperations(lenderModel, v.history); got != v.want {
			t.Errorf("%s: possible is %v, want %v", v.name, got, v.want)
		}
	}
}
