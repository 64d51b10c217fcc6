package egress

import (
	"net"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// nameServer is a DNS server on loopback that answers from a script.
type nameServer struct {
	addr string

	mu      sync.Mutex
	records map[string][][]string // name to the addresses of its 1st, 2nd … lookup; the last repeats
	asked   map[string]int        // A questions per name
	rcode   map[string]int
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{addr: conn.LocalAddr().String(), records: map[string][][]string{}, asked: map[string]int{}, rcode: map[string]int{}}
	srv := &dns.Server{PacketConn: conn, Handler: s}
	started := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(started) }
	go srv.ActivateAndServe()
	<-started
	t.Cleanup(func() { srv.Shutdown() })
	return s
}

// answer scripts the addresses of a name: one list per lookup.
func (s *nameServer) answer(name string, lookups ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[name+"."] = lookups
}

func (s *nameServer) fail(name string, rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcode[name+"."] = rcode
}

func (s *nameServer) lookups(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name+"."]
}

func (s *nameServer) ServeDNS(w dns.ResponseWriter, req *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := req.Question[0]
	reply := new(dns.Msg)
	reply.SetReply(req)
	reply.RecursionAvailable = true
	lookup := s.asked[q.Name]
	if q.Qtype == dns.TypeA {
		s.asked[q.Name]++
	} else if lookup > 0 {
		lookup-- // the question for AAAA belongs to the lookup whose A was asked just before
	}
	lists, known := s.records[q.Name]
	switch {
	case s.rcode[q.Name] != 0:
		reply.Rcode = s.rcode[q.Name]
	case !known:
		reply.Rcode = dns.RcodeNameError
	case len(lists) > 0:
		for _, text := range lists[min(lookup, len(lists)-1)] {
			ip := net.ParseIP(text)
			head := dns.RR_Header{Name: q.Name, Class: dns.ClassINET, Ttl: 0}
			if v4 := ip.To4(); v4 != nil && q.Qtype == dns.TypeA {
				head.Rrtype = dns.TypeA
				reply.Answer = append(reply.Answer, &dns.A{Hdr: head, A: v4})
			} else if v4 == nil && q.Qtype == dns.TypeAAAA {
				head.Rrtype = dns.TypeAAAA
				reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: head, AAAA: ip})
			}
		}
	}
	w.WriteMsg(reply)
}
