package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// A User is a record of the store.
type User struct{ ID int }

type userStore func(ctx context.Context, id int) (*User, error)

func (s userStore) User(ctx context.Context, id int) (*User, error) { return s(ctx, id) }

func fetchUser(ctx context.Context, store userStore, id int) (*User, error) {
	// begin call
	gate, err := sluice.New(sluice.Config{Name: "users", Concurrency: 8, Rate: sluice.Rate{Count: 100, Per: time.Second}})
	if err != nil {
		return nil, err
	}
	return sluice.RetryValue(ctx, gate, sluice.RetryPolicy{}, func(ctx context.Context) (*User, error) {
		return store.User(ctx, id) // an error wrapped by sluice.RetryAfter pauses all callers of the gate
	})
	// end call
}

func TestREADME(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, began := true, time.Now()
		user, err := fetchUser(t.Context(), func(ctx context.Context, id int) (*User, error) {
			if first {
				first = false
				return nil, sluice.RetryAfter(errors.New("busy"), time.Minute)
			}
			return &User{id}, nil
		}, 7)
		if err != nil || user.ID != 7 || time.Since(began) != time.Minute {
			t.Errorf("%v, %v after %v", user, err, time.Since(began))
		}
	})
}
