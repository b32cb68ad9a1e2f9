package recipes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
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

type users struct {
	db   *sql.DB
	gate *sluice.Gate
}

// begin database/sql, a query
func (u *users) name(ctx context.Context, id int64) (name string, err error) {
	return sluice.RetryValue(ctx, u.gate, sluice.RetryPolicy{Retryable: isTransient}, func(ctx context.Context) (name string, err error) {
		err = u.db.QueryRowContext(ctx, "SELECT name FROM users WHERE id = $1", id).Scan(&name)
		return name, err // rows must be closed here: the permit is released when the function returns
	})
}

// isTransient reports whether a query is worth another attempt; your driver has more such errors.
func isTransient(err error) bool { return errors.Is(err, driver.ErrBadConn) }

// end database/sql, a query

func TestSQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(fakeDB{})
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
	})
}

const fakeLatency = 10 * time.Millisecond

// A fakeDB answers every query with one name.
type fakeDB struct{}

func (fakeDB) Connect(context.Context) (driver.Conn, error) { return fakeDB{}, nil }
func (fakeDB) Driver() driver.Driver                        { return nil }
func (fakeDB) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (fakeDB) Close() error                                 { return nil }
func (fakeDB) Prepare(string) (driver.Stmt, error)          { return fakeStmt{}, nil }

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
