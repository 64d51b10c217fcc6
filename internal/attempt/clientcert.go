package attempt

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// What is wrong with a client certificate; none of it is quoted.
var (
	ErrCertificate    = errors.New("want a certificate chain in PEM, the endpoint's own first")
	ErrCertificateKey = errors.New("want the certificate's private key in PEM, not encrypted")
)

// ClientCertificate reads what an endpoint shows to a server that asks who is there.
func ClientCertificate(chain, key string) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		// The library's words quote the PEM blocks it met; ours say which half to look at.
		if _, err := CertificateOf(chain); err != nil {
			return nil, ErrCertificate
		}
		return nil, ErrCertificateKey
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, ErrCertificate
		}
	}
	return &pair, nil
}

// CertificateOf reads the certificate of a chain, without its key, to show whose it is.
func CertificateOf(chain string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(chain))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, ErrCertificate
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, ErrCertificate
	}
	return leaf, nil
}
