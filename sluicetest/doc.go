// Package sluicetest is an in-memory HTTP server for testing clients of rate-limited APIs. It
// enforces limits exactly, fails on request, and records every request so that a test can check the
// client's behavior.
//
// In a testing/synctest bubble hours pass in milliseconds and every time is exact:
//
//	func TestMyClient(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := sluicetest.NewServer(
//				sluicetest.On(3, sluicetest.Status(503)),
//				sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second, HeaderStyle: sluicetest.GitHub}),
//			)
//			defer srv.Close()
//			myclient.FetchAll(t.Context(), srv.Client(), "https://api.example.com/items")
//			if err := srv.Record().CheckSpacing(100 * time.Millisecond); err != nil {
//				t.Error(err)
//			}
//		})
//	}
//
// It works with any client that accepts an [http.Client], an [http.RoundTripper] or a dial
// function, and does not import the rest of Sluice. Outside a bubble it uses the real clock.
//
// # Layers
//
// A server is a stack of layers around a handler, the first one outermost. A request passes through
// them until one answers it:
//
//	any response; its header                      Status, Reply; Header
//	slow or no answers; bodies that stall         Delay; Stall
//	connections cut; garbage                      Cut, Reset, CutBody; Garbage
//	the request body read before the response     ReadBody
//	a graceful shutdown (GOAWAY in HTTP/2)        Header("Connection: close")
//	limits of calls, tokens, points, bytes        Enforce; Settle, in a Handler
//	server-sent events over some seconds          Stream, in a Handler
//	1xx responses, aborted streams                Handler
//
//	the third, the first three, every third       On, First, Every
//	a different fault for each request            Script
//	one host, one path, any other rule            Host, Path, When
//
// To make connections fail, wrap the DialContext function of [Server.Transport]. [Server.Record]
// returns all requests and connections with their times; the methods of a [Record] check them.
//
// There is no network: bytes take no time and names are not resolved. HTTP/3 is not supported.
package sluicetest
