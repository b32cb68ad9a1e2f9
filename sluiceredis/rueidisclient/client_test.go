package rueidisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/sluiceredis/internal/clienttest"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
)

// open returns a client that ends with the test.
func open(t testing.TB, option rueidis.ClientOption) sluiceredis.Client {
	t.Helper()
	c, closes, err := New(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closes)
	return c
}

func TestConforms(t *testing.T) {
	clienttest.Run(t, clienttest.Library{
		Single: func(t testing.TB, addr string, timeout time.Duration) sluiceredis.Client {
			return open(t, rueidis.ClientOption{
				InitAddress: []string{addr}, ForceSingleClient: true, ConnWriteTimeout: timeout,
				PipelineMultiplex: -1, // one connection, so that there is one once it has answered
			})
		},
		Login: func(t testing.TB, addr, user, password string) sluiceredis.Client {
			return open(t, rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, Username: user, Password: password})
		},
		Cluster: func(t testing.TB, addrs []string) sluiceredis.Client {
			return open(t, rueidis.ClientOption{InitAddress: addrs})
		},
	})
}

func TestNewRefusesWhatDoesNotObey(t *testing.T) {
	toReplicas := func(rueidis.Completed) bool { return true }
	for _, v := range []struct {
		option rueidis.ClientOption
		want   string
	}{
		{rueidis.ClientOption{ReplicaOnly: true}, "replicas"},
		{rueidis.ClientOption{SendToReplicas: toReplicas}, "replicas"},
		{rueidis.ClientOption{Standalone: rueidis.StandaloneOption{ReplicaAddress: []string{"127.0.0.1:1"}}}, "replicas"},
		{rueidis.ClientOption{ConnLifetime: time.Hour}, "ConnLifetime"},
		{rueidis.ClientOption{Standalone: rueidis.StandaloneOption{EnableRedirect: true}}, "EnableRedirect"},
		{rueidis.ClientOption{}, "refused"},
	} {
		v.option.InitAddress = []string{"127.0.0.1:1"}
		if c, _, err := New(v.option); c != nil || err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%v, want %q", err, v.want)
		}
	}
	if _, _, err := New(rueidis.ClientOption{}); !errors.Is(err, rueidis.ErrNoAddr) {
		t.Errorf("no address: %v", err)
	}
}

// A dialer of the caller's is used, and what it cannot reach was not asked.
func TestDialersOfTheOption(t *testing.T) {
	addr := redistest.Mini(t)
	script := clienttest.Script("one", "return {1}")
	for name, set := range map[string]func(o *rueidis.ClientOption, away *bool){
		"DialFn": func(o *rueidis.ClientOption, away *bool) {
			o.DialFn = func(string, *net.Dialer, *tls.Config) (net.Conn, error) { return dialUnless(away, addr) }
		},
		"DialCtxFn": func(o *rueidis.ClientOption, away *bool) {
			o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				return dialUnless(away, addr)
			}
		},
	} {
		for _, away := range []bool{false, true} {
			o := rueidis.ClientOption{InitAddress: []string{"nowhere:1"}, ForceSingleClient: true}
			set(&o, &away)
			got, err := open(t, o).Run(t.Context(), script, nil, nil)
			if !away && (err != nil || got[0] != 1) || away && err != errAway {
				t.Errorf("%s, away: %v: %v, %v", name, away, got, err)
			}
		}
	}
}

var errAway = errors.New("away")

func dialUnless(away *bool, addr string) (net.Conn, error) {
	if *away {
		return nil, errAway
	}
	return net.Dial("tcp", addr)
}

// TLS is spoken where the option says so: to a server without it, not at all.
func TestTLS(t *testing.T) {
	addr := redistest.Mini(t)
	c := open(t, rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, TLSConfig: &tls.Config{InsecureSkipVerify: true},
		Dialer: net.Dialer{Timeout: time.Second},
	})
	_, err := c.Run(t.Context(), clienttest.Script("one", "return {1}"), nil, nil)
	if err == nil || errors.Is(err, sluiceredis.ErrAmbiguous) {
		t.Errorf("%v", err)
	}
}

// A client that was closed sends nothing.
func TestClosed(t *testing.T) {
	c := open(t, rueidis.ClientOption{InitAddress: []string{redistest.Mini(t)}})
	c.(*adapter).close()
	script := clienttest.Script("one", "return {1}")
	if _, err := c.Run(t.Context(), script, nil, nil); err != rueidis.ErrClosing {
		t.Errorf("one: %v", err)
	}
	if r := c.RunMany(t.Context(), []sluiceredis.ScriptCall{{Script: script}}); r[0].Err != rueidis.ErrClosing {
		t.Errorf("many: %v", r[0].Err)
	}
}

// Who shares a connection with a call that ran out of time is not told that its
// own time has ended.
func TestOthersDeadline(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Mini(t))
	c := open(t, rueidis.ClientOption{InitAddress: []string{p.Addr}, ForceSingleClient: true, PipelineMultiplex: -1})
	script := clienttest.Script("one", "return {1}")
	if _, err := c.Run(context.Background(), script, nil, nil); err != nil {
		t.Fatal(err)
	}
	p.Set(redistest.Fault{DropReply: true})
	first, second := make(chan error), make(chan error)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	go func() { _, err := c.Run(ctx, script, nil, nil); first <- err }()
	for p.Dropped() == 0 { // until the first is on its way
		time.Sleep(time.Millisecond)
	}
	go func() { _, err := c.Run(context.Background(), script, nil, nil); second <- err }()
	if err := <-first; !errors.Is(err, sluiceredis.ErrAmbiguous) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first: %v", err)
	}
	if err := <-second; !errors.Is(err, sluiceredis.ErrAmbiguous) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second: %v", err)
	}
}

// A canceled context is noticed immediately where the client always pipelines.
func TestCancelIsNoticed(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Mini(t))
	c := open(t, rueidis.ClientOption{InitAddress: []string{p.Addr}, ForceSingleClient: true, AlwaysPipelining: true})
	p.Set(redistest.Fault{DropReply: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	go func() {
		for p.Dropped() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	script := clienttest.Script("one", "return {1}")
	if _, err := c.Run(ctx, script, nil, nil); !errors.Is(err, sluiceredis.ErrAmbiguous) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	cancel()
}
