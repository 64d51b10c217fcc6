package egress

import (
	"bufio"
	"net/netip"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// testdata/egress-vectors.tsv holds the first and last address of every row of the IANA
// special-purpose registries, the forms in which IPv6 hides an IPv4 address, the metadata
// services of the clouds, and neighbours that must stay reachable.
func TestSpecial_goldenVectors(t *testing.T) {
	file, err := os.Open("testdata/egress-vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	verdicts := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		addr, err := netip.ParseAddr(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		got := "allow"
		if special(addr) != "" {
			got = "deny"
		}
		if got != fields[1] {
			t.Errorf("%s: %s (%s), want %s (%s)", addr, got, special(addr), fields[1], fields[2])
		}
		verdicts[fields[1]]++
	}
	if verdicts["allow"] < 25 || verdicts["deny"] < 150 {
		t.Errorf("the file lost vectors: %v", verdicts)
	}
}

// An address and its mapped form are one destination and must have one verdict.
func TestSpecial_mappedAddressesAreJudgedAsIPv4(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr")))
		mapped := netip.AddrFrom16(addr.As16())
		if !mapped.Is4In6() {
			t.Fatal("not a mapped address")
		}
		if special(addr) != special(mapped) {
			t.Fatalf("%s is %q, %s is %q", addr, special(addr), mapped, special(mapped))
		}
	})
}

// Nothing outside 2000::/3 is public, whatever it is assigned to one day.
func TestSpecial_onlyGlobalUnicastIsPublic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr"))
		addr := netip.AddrFrom16(raw)
		if addr.Is4In6() {
			return
		}
		if raw[0]>>5 != 1 && special(addr) == "" {
			t.Fatalf("%s is taken for public", addr)
		}
		if special(addr.WithZone("eth0")) == "" {
			t.Fatalf("%s with a zone is taken for public", addr)
		}
	})
}

func TestPolicy_allowListsOpenTheirRangesToTheirClass(t *testing.T) {
	p := &Policy{
		Allow:         []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		AllowInternal: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
	}
	for _, row := range []struct {
		addr             string
		public, internal bool
	}{
		{"127.0.0.1", true, true},
		{"::ffff:127.0.0.1", true, true},
		{"::1", false, false},
		{"fd00::1", true, true},
		{"fd00::1%eth0", false, false},
		{"10.1.2.3", false, true},
		{"::ffff:10.1.2.3", false, true},
		{"10.2.0.1", false, false},
		{"169.254.169.254", false, false},
		{"1.1.1.1", true, true},
	} {
		addr := netip.MustParseAddr(row.addr)
		if got := p.judge(addr, false) == ""; got != row.public {
			t.Errorf("%s for a public tenant: %v, want %v", addr, got, row.public)
		}
		if got := p.judge(addr, true) == ""; got != row.internal {
			t.Errorf("%s for an internal tenant: %v, want %v", addr, got, row.internal)
		}
	}
}

func TestPorts_sets(t *testing.T) {
	for text, row := range map[string]struct{ in, out []uint16 }{
		DefaultPorts.String():      {[]uint16{80, 443, 1024, 8080, 8443, 65535}, []uint16{0, 1, 22, 25, 81, 1023, 2375, 2379, 3306, 5432, 6379, 9200, 10250, 11211, 27017}},
		"443, 8000-8999,!8080":     {[]uint16{443, 8000, 8079, 8081, 8999}, []uint16{80, 8080, 9000}},
		"!8000-8100,8000-9000":     {[]uint16{8101, 9000}, []uint16{8000, 8100}},
		"1-65535":                  {[]uint16{1, 22, 65535}, []uint16{0}},
		"!22":                      {nil, []uint16{22, 80}},
		"65535":                    {[]uint16{65535}, []uint16{65534}},
		"80,443,!443,1024-1025":    {[]uint16{80, 1024, 1025}, []uint16{443, 1026}},
		"80 , 443 ":                {[]uint16{80, 443}, []uint16{81}},
		"8443,8443,8443-8443,!443": {[]uint16{8443}, []uint16{443}},
	} {
		t.Run(text, func(t *testing.T) {
			ports, err := ParsePorts(text)
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParsePorts(ports.String())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []Ports{ports, again} {
				for _, port := range row.in {
					if !p.Contains(port) {
						t.Errorf("%d is not in %s", port, p)
					}
				}
				for _, port := range row.out {
					if p.Contains(port) {
						t.Errorf("%d is in %s", port, p)
					}
				}
			}
		})
	}
	for _, text := range []string{"", "0", "http", "80,", "90-80", "1-70000", "-80", "!", "0-80", "80-"} {
		if ports, err := ParsePorts(text); err == nil {
			t.Errorf("%q is read as %s", text, ports)
		}
	}
}
