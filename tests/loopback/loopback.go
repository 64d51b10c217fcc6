// Package loopback finds addresses for servers under test.
package loopback

import (
	"crypto/rand"
	"fmt"
	"net"
)

// Address returns the address and a port of a loopback network interface that nobody else picks,
// free now and whenever the server is down later. A free port of 127.0.0.1 would not do: before
// the server binds it, and while it is down, it may be given to any listener or outgoing
// connection of the machine. Where the system has only 127.0.0.1, that risk is taken.
func Address() (host string, port int, err error) {
	random := make([]byte, 2)
	rand.Read(random)
	l, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", random[0], 1+random[1]%254))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", 0, err
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr)
	return at.IP.String(), at.Port, nil
}
