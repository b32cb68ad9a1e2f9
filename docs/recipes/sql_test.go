package recipes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

func newUsers(db *sql.DB) (*users, error) {
	// begin database/sql
	gate, err := sluice.New(sluice.Config{
		Name:        "users",
		Concurrency: 10, // as for SetMaxOpenConns
		Rate:        sluice.Rate{Count: 200, Per: time.Second},
	})
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(10)
	// end database/sql
	return &users{db, gate}, nil
}

// begin database/sql, a query
// users is a table, and the gate of its database.
type users struct {
	db   *sql.DB
	gate *sluice.Gate
}

func (u *users) name(ctx context.Context, id int64) (name string, err error) {
	return sluice.RetryValue(ctx, u.gate, func(ctx context.Context) (name string, err error) {
		err = u.db.QueryRowContext(ctx, "SELECT name FROM users WHERE id = $1", id).Scan(&name)
		return name, err // rows must be closed here: the permit is released when the function returns
	}, sluice.RetryPolicy{Retryable: isTransient})
}

// isTransient reports whether a query is worth another attempt; your driver has more such errors.
func isTransient(err error) bool { return errors.Is(err, driver.ErrBadConn) }

// end database/sql, a query

func TestSQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(fakeDB{new(atomic.Int64)})
		defer db.Close()
		u, err := newUsers(db)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		parallel(t, 201, func() error {
			_, err := u.name(t.Context(), 1)
			return err
		})
		if took := time.Since(began); took != time.Second+fakeLatency {
			t.Errorf("201 queries took %v", took)
		}
		if s := db.Stats(); s.WaitCount > 0 || s.MaxOpenConnections != 10 {
			t.Errorf("%d of 201 queries waited for a connection, with %d of them", s.WaitCount, s.MaxOpenConnections)
		}
	})
}

// A connection breaks 9 times. database/sql tries three times at once, and the gate tries
// that again after its backoff.
func TestSQL_Broken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for broken, ok := range map[int64]bool{9: true, 13: false} {
			fake := fakeDB{new(atomic.Int64)}
			fake.broken.Store(broken)
			db := sql.OpenDB(fake)
			u, err := newUsers(db)
			if err != nil {
				t.Fatal(err)
			}
			if name, err := u.name(t.Context(), 1); (err == nil && name == "name") != ok || fake.broken.Load() != max(0, broken-12) {
				t.Errorf("broken %d times: %q, %v, and then %d times", broken, name, err, fake.broken.Load())
			}
			_ = db.Close()
		}
	})
}

const fakeLatency = 10 * time.Millisecond

// A fakeDB answers every query with one name, except that its connections break at first.
type fakeDB struct{ broken *atomic.Int64 }

func (db fakeDB) Connect(context.Context) (driver.Conn, error) { return db, nil }
func (fakeDB) Driver() driver.Driver                           { return nil }
func (fakeDB) Begin() (driver.Tx, error)                       { return nil, driver.ErrSkip }
func (fakeDB) Close() error                                    { return nil }
func (db fakeDB) Prepare(string) (driver.Stmt, error) {
	if db.broken.Add(-1) >= 0 {
		return nil, driver.ErrBadConn
	}
	db.broken.Store(0)
	return fakeStmt{}, nil
}

type fakeStmt struct{}

func (fakeStmt) Close() error                               { return nil }
func (fakeStmt) NumInput() int                              { return 1 }
func (fakeStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (fakeStmt) Query([]driver.Value) (driver.Rows, error) {
	time.Sleep(fakeLatency)
	return &fakeRows{}, nil
}

type fakeRows struct{ read bool }

func (*fakeRows) Columns() []string { return []string{"name"} }
func (*fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(row []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	row[0] = "name"
	return nil
}
