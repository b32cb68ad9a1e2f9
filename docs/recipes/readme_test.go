package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// A User is a record of the store.
type User struct{ ID int }

type userStore func(ctx context.Context, id int) (*User, error)

func (s userStore) User(ctx context.Context, id int) (*User, error) { return s(ctx, id) }

var store userStore

// begin call
// One gate for the whole program.
var gateOfUsers = limits.Must(sluice.New(sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 100, Per: time.Second}}))

func fetchUser(ctx context.Context, id int) (*User, error) {
	return sluice.RetryValue(ctx, gateOfUsers, sluice.RetryPolicy{}, func(ctx context.Context) (*User, error) {
		return store.User(ctx, id) // an error wrapped by sluice.RetryAfter pauses all callers of the gate
	})
}

// end call

func TestREADME(t *testing.T) {
	const pause = 50 * time.Millisecond
	first, began := true, time.Now()
	store = func(ctx context.Context, id int) (*User, error) {
		if first {
			first = false
			return nil, sluice.RetryAfter(errors.New("busy"), pause)
		}
		return &User{id}, nil
	}
	user, err := fetchUser(t.Context(), 7)
	if err != nil || user.ID != 7 || time.Since(began) < pause {
		t.Errorf("%v, %v after %v", user, err, time.Since(began))
	}
}
