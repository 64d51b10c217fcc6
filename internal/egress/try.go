package egress

import (
	"net/url"
	"time"
)

// Contact is what a connection that was only made to be looked at has shown.
type Contact struct {
	// CertificateUntil is when the server's certificate ends; zero for http.
	CertificateUntil time.Time
	// ClientCertificate: the server asked for one.
	ClientCertificate bool
}

// Try connects to where a URL leads, as a request would, and hangs up without sending one: names
// are looked up, every address is judged, and the TLS handshake is made. The error is a
// *DialError.
func (g *Guard) Try(u *url.URL, peer Peer) (Contact, error) {
	t, err := g.target(u, peer)
	if err != nil {
		return Contact{}, err
	}
	conn, err := t.connection()
	if err != nil {
		return Contact{}, err
	}
	defer conn.Close()
	return Contact{CertificateUntil: conn.CertificateUntil(), ClientCertificate: conn.certificateAsked}, nil
}
