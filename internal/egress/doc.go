// Package egress decides which addresses may be dialled, and is the only place that dials them.
//
// The URL of an endpoint is a stranger's. Whoever can make this process send a request somewhere
// can reach what only this process reaches: the database, the metadata service of the cloud, the
// service next door. So the guard judges addresses, not names, and at the moment of dialling:
//
//	CheckURL   when an endpoint is registered: scheme, userinfo, port, literal addresses; a
//	           courtesy that tells people early, never the wall
//	lookup     once per connection, by Go's own resolver, so that the build does not change the
//	           answer; if ANY address of the answer is forbidden the host is refused, because
//	           which of several addresses gets dialled is not ours to say
//	connect    to the address that was judged, never to the name again: a name resolved twice can
//	           answer differently
//	control    net.Dialer.ControlContext judges the address of the socket once more, whatever
//	           happened above
//
// A lookup that fails is a failure, never a skipped check. Proxy variables of the environment are
// ignored: through a proxy, the address we see is the proxy's.
//
// Redirects are never followed, bodies are never unpacked, and nothing is ever sent twice: the
// guard's RoundTrip is one request on one connection. HTTP/2 is off on purpose. Streams of one
// connection share its fate and its flow control, its client re-sends requests by itself after a
// GOAWAY, and every HTTPS server speaks HTTP/1.1; with one request at a time on a connection,
// every failure belongs to one attempt, and an attempt that hangs holds up nobody.
//
// # Whose answer it is
//
// HTTP/1.1 does not say which request an answer is for: the next bytes on the connection are the
// next answer. A receiver that sends two answers to one request, by mistake or to have the next
// event count as delivered, must not get away with it. So connections belong to one endpoint, and
// what goes over them can only ever hurt that endpoint; and each is read by the exchange that has
// it, through a buffer that is empty before and after:
//
//	after the answer   one byte in the buffer that is not the answer's, and the connection is closed
//	before a request   one byte that arrived since, in the socket or in the layer of TLS, and it is
//	                   closed too; a new connection is looked at in the same way
//
// net/http's Transport gives neither. It reads ahead in a goroutine of its own, tells nobody what is
// in its buffer, and takes bytes that came before a request for its answer, if the request is faster
// than that goroutine. What is used of net/http is how it writes a request and reads an answer.
package egress
