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
//	you want                                           use
//	429, 503, a redirect, any response                 Status, Reply
//	a wrong or an additional header                    Header
//	a server that is slow or never answers             Delay
//	a body that stalls                                 Stall
//	a connection cut before or within the response     Cut, Reset, CutBody
//	something that is not HTTP                         Garbage
//	the request body read before the response          ReadBody
//	a graceful shutdown (GOAWAY in HTTP/2)             Header("Connection: close")
//	limits with the headers of a provider              Enforce
//	a limit of LLM tokens, points, bytes               Enforce, with a Cost
//	the cost known only when the response ends         Settle, in a Handler
//	server-sent events over some seconds               Stream, in a Handler
//	1xx responses, aborted streams                     Handler, with a handler of yours
//
//	only for some requests                             use
//	the third, the first three, every third            On, First, Every
//	a different fault for each request                 Script
//	one host, one path                                 Host, Path
//	any other rule                                     When
//
// To make connections fail, wrap the DialContext function of [Server.Transport]. [Server.Record]
// returns all requests and connections with their times; the methods of a [Record] check them.
//
// # Limitations
//
// There is no network: bytes take no time and names are not resolved. HTTP/3 is not supported. The
// server is the one of net/http, with its habits.
package sluicetest
