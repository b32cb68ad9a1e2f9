package sluicetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestWhen(t *testing.T) {
	teapot := sluicetest.Status(418)
	for _, tt := range []struct {
		name  string
		layer sluicetest.Layer
		want  string // of requests 1 to 6, x where the layer answered
	}{
		{"On", sluicetest.On(3, teapot), "..x..."},
		{"First", sluicetest.First(2, teapot), "xx...."},
		{"Every", sluicetest.Every(2, teapot), ".x.x.x"},
		{"Every 1", sluicetest.Every(1, teapot), "xxxxxx"},
		{"When", sluicetest.When(func(n int, r *http.Request) bool { return n > 4 || r.URL.Query().Get("n") == "2" }, teapot), ".x..xx"},
		{"Path", sluicetest.Path("/b", teapot), ".x.x.x"},
		{"Host", sluicetest.Host("a.test", teapot), "xxxxxx"},
		{"another Host", sluicetest.Host("b.test", teapot), "......"},
		{"Script", sluicetest.Script(teapot, nil, teapot), "x.x..."},
		{"Script of nothing", sluicetest.Script(), "......"},
		{"nested, each counting what gets to it", sluicetest.Path("/b", sluicetest.On(2, teapot)), "...x.."},
		{"several, the first outermost", sluicetest.On(2, sluicetest.Script(nil), teapot), ".x...."},
		{"none", sluicetest.On(2), "......"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := sluicetest.NewServer(tt.layer)
				defer srv.Close()
				c := srv.Client()
				got := ""
				for n := 1; n <= 6; n++ {
					switch answer := get(c, fmt.Sprintf("http://a.test/%c?n=%d", "ab"[(n+1)%2], n))[:3]; answer {
					case "418":
						got += "x"
					case "200":
						got += "."
					default:
						t.Error(answer)
					}
					time.Sleep(time.Second)
				}
				if got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestNewServer_FirstLayerIsOutermost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		note := func(name string) sluicetest.Layer { // any middleware is a Layer
			return func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					order = append(order, name)
					next.ServeHTTP(w, r)
				})
			}
		}
		app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "app") })
		srv := sluicetest.NewServer(note("a"), note("b"), sluicetest.Handler(app), note("c"))
		defer srv.Close()
		if got := get(srv.Client(), "http://a.test"); got != "200 app" || !reflect.DeepEqual(order, []string{"a", "b"}) {
			t.Errorf("%s through %v", got, order)
		}
	})
}

func TestLayer_Mistakes(t *testing.T) {
	for what, f := range map[string]func(){
		"layer":       func() { sluicetest.NewServer(nil) },
		"inner layer": func() { sluicetest.On(1, nil) },
		"handler":     func() { sluicetest.Handler(nil) },
		"condition":   func() { sluicetest.When(nil) },
		"On":          func() { sluicetest.On(0) },
		"First":       func() { sluicetest.First(0) },
		"Every":       func() { sluicetest.Every(0) },
		"Status":      func() { sluicetest.Status(199) },
		"Reply":       func() { sluicetest.Reply(1000, "") },
		"header":      func() { sluicetest.Header("no colon") },
		"Stall":       func() { sluicetest.Stall(-1, 1) },
		"CutBody":     func() { sluicetest.CutBody(-1) },
	} {
		mustPanic(t, what, "sluicetest: ", f)
	}
	outside := sluicetest.Delay(1)(http.NotFoundHandler())
	mustPanic(t, "outside", "sluicetest: a Layer", func() {
		outside.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	})
}

// A real socket.
func TestServer_ServeHTTP(t *testing.T) {
	srv := sluicetest.NewServer(
		sluicetest.On(1, sluicetest.Cut()),
		sluicetest.On(1, sluicetest.Garbage("x")),
		sluicetest.Enforce(sluicetest.Limit{Quota: 1, Window: time.Hour}))
	defer srv.Close()
	on := httptest.NewServer(srv)
	defer on.Close()
	c := on.Client()
	for i, want := range []string{"EOF", "EOF", "200 ok", "429 quota exceeded"} {
		resp, err := c.Post(on.URL, "", nil)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%d", resp.StatusCode)
			resp.Body.Close()
			want = want[:3]
		}
		if !strings.Contains(got, want) {
			t.Errorf("%d: %s, want %s", i+1, got, want)
		}
	}
	if r := srv.Record(); len(r.Requests) != 4 || len(r.Conns) != 0 || r.Requests[3].Conn != 0 {
		t.Errorf("%+v", r)
	}
}

// Close ends requests that wait, on a socket as well.
func TestServer_CloseOnASocket(t *testing.T) {
	arrived := make(chan bool)
	srv := sluicetest.NewServer(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(arrived)
			next.ServeHTTP(w, r)
		})
	}, sluicetest.Delay(limits.Never))
	on := httptest.NewServer(srv)
	defer on.Close()
	go func() {
		<-arrived
		srv.Close()
	}()
	if resp, err := on.Client().Post(on.URL, "", nil); err == nil {
		t.Errorf("%v of a server that is closed", resp.Status)
		resp.Body.Close()
	}
}

func TestServer_HandlerPanics(t *testing.T) {
	everyWay(t, func(t way) {
		srv, c := t.serve(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no such luck") })
		})
		if _, err := c.Post(t.scheme+"://a.test", "", nil); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		r := srv.Record()
		if len(r.Log) != 1 || !strings.Contains(r.Log[0], "no such luck") || r.Requests[0].InFlight || r.Requests[0].Status != 0 {
			t.Errorf("log %q, %+v", r.Log, r.Requests)
		}
	})
}
