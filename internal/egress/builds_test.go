package egress

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// verdictsTo is the environment variable that has a build of this test write its verdicts to a file.
const verdictsTo = "EGRESS_VERDICTS_TO"

// One program, one answer: with Go's resolver or with the C library's beside it, which takes 127.1 and
// 0x7f000001 for addresses, a build judges as the other does.
func TestGuard_verdictsDoNotDependOnTheBuild(t *testing.T) {
	if file := os.Getenv(verdictsTo); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(verdicts(t), "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if testing.Short() {
		t.Skip("builds this package twice")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("there is no C compiler")
		}
	}
	dir := t.TempDir()
	told := map[string][]string{}
	for _, cgo := range []string{"0", "1"} {
		program, file := filepath.Join(dir, "egress"+cgo), filepath.Join(dir, "verdicts"+cgo)
		// netdns=cgo asks for the C library's resolver wherever the program does not insist on Go's.
		env := append(os.Environ(), "CGO_ENABLED="+cgo, "GODEBUG=netdns=cgo", verdictsTo+"="+file)
		for _, command := range [][]string{
			{"go", "test", "-c", "-o", program, "."},
			{program, "-test.run", "^" + t.Name() + "$"},
		} {
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("CGO_ENABLED=%s %v: %v\n%s", cgo, command, err, out)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		told[cgo] = strings.Split(string(text), "\n")
	}
	if n := len(told["0"]); n < 200 || n != len(told["1"]) {
		t.Fatalf("%d verdicts without cgo, %d with it", n, len(told["1"]))
	}
	for i, without := range told["0"] {
		if with := told["1"][i]; with != without {
			t.Errorf("without cgo %q, with it %q", without, with)
		}
	}
}

// verdicts judges every golden vector as an address and as a URL's host, and the spellings of an
// address that resolvers differ in.
func verdicts(t *testing.T) []string {
	t.Helper()
	g := guard(t, Policy{})
	var lines []string
	tell := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	host := func(host string) {
		u, err := g.ParseURL("http://"+host+"/", false)
		tell("URL of %s: %v, %v", host, u, err)
	}
	file, err := os.Open("testdata/egress-vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for vectors := bufio.NewScanner(file); vectors.Scan(); {
		if fields := strings.Split(vectors.Text(), "\t"); !strings.HasPrefix(fields[0], "#") {
			addr := netip.MustParseAddr(fields[0])
			if got := special(addr) == ""; got != (fields[1] == "allow") {
				t.Errorf("%s: allowed is %t", addr, got)
			}
			tell("%s: %q", addr, special(addr))
			host(netip.AddrPortFrom(addr, 443).String())
		}
	}
	spellings := []string{
		"127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "0", "127.0.0.1.", "①②⑦.⓪.⓪.①", "127。0。0。1", "ⓛocalhost", "localhost", "LOCALHOST.",
	}
	for _, spelling := range spellings {
		host(spelling)
	}
	// Past the URL's check and past the one before the resolver: what is asked takes none of them for an
	// address. Where no name server answers, there is none either.
	found := make([]string, len(spellings))
	var wg sync.WaitGroup
	for i, spelling := range spellings {
		if strings.Contains(strings.ToLower(spelling), "localhost") || strings.HasSuffix(spelling, ".") {
			continue // the machine's own file has these
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if addrs, err := g.resolver.LookupNetIP(ctx, "ip", spelling); err == nil {
				slices.SortFunc(addrs, netip.Addr.Compare)
				found[i] = fmt.Sprint(addrs)
			}
		})
	}
	wg.Wait()
	for i, spelling := range spellings {
		tell("lookup of %s: %s", spelling, found[i])
	}
	return lines
}
