// Package sluicetest is an HTTP server in memory for tests of clients of
// rate-limited APIs. It enforces limits exactly, fails in the ways listed below, and
// keeps a record with which a test judges the client.
//
// Under testing/synctest hours pass in milliseconds and every instant is exact:
//
//	func TestMyClient(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := sluicetest.NewServer(
//				sluicetest.On(3, sluicetest.Status(503)),
//				sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second, Family: sluicetest.GitHub}),
//			)
//			defer srv.Close()
//			myclient.FetchAll(t.Context(), srv.Client(), "https://api.example.com/items")
//			if err := srv.Record().Evenly(100 * time.Millisecond); err != nil {
//				t.Error(err)
//			}
//		})
//	}
//
// Any client will do that can be given an [http.Client], an [http.RoundTripper]
// or a function that dials; there is nothing of Sluice in it. It works outside a
// bubble as well, by the real clock.
//
// # Layers
//
// A server is made of layers around a handler, the first outermost. A request
// goes through them until one answers it:
//
//	you want                                           use
//	429, 503, a redirect, any answer                   Status, Reply
//	a header that is wrong, or more of it              Header
//	a server that is slow, or never answers            Delay
//	a body that stops in the middle                    Stall
//	a connection that is cut, before or in the answer  Cut, Reset, CutBody
//	a stream that is reset, and the connection lives   Abort
//	something that is not HTTP                         Garbage
//	a server that shuts down: GOAWAY                   GoAway
//	a clock that is wrong                              Skew
//	100 Continue, 103 Early Hints                      ReadBody, Inform
//	101 Switching Protocols                            Upgrade
//	an event stream                                    Events
//	limits, with the headers of a provider             Enforce
//	a handler of your own                              Handler
//
//	only for some requests                             use
//	the third, the first three, all after three        On, First, After
//	every third                                        Every
//	one after another, each another fault              Script
//	for a minute, an hour after the beginning          During
//	of one host, of one path                           Host, Path
//	by any other rule                                  When
//
// What happens before there is a request is not a layer: [Server.OnDial] refuses
// connections or lets them hang, [Server.CutConns] breaks those that are open.
//
// # The record
//
// [Server.Record] has every request with its instants, every connection, and the
// bodies that a client left unread. Its methods that return an error are verdicts:
// Evenly, Within, AtOnce, NoneRefused, Obeyed, AllRead. They say what is wrong in
// words, and with which request. The record grows with every request; [Server.Forget]
// empties it between the parts of a long test.
//
// # What it is not
//
// There is no network: bytes take no time, and names are not resolved. HTTP/3 is
// not spoken. The server is net/http's own, with its own ways, such as to wait
// 500 ms before it closes a connection on which it did not read a request to its
// end.
package sluicetest
