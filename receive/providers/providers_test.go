package providers_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive/providers"
)

func ExampleNamed() {
	p, ok := providers.Named("svix")
	fmt.Println(ok, p.Timeout, p.Horizon)
	// Output: true 15s 27h35m5s
}

func TestProviders_areWholeAndHonestAboutTheirSources(t *testing.T) {
	last := ""
	for p := range providers.All() {
		if p.Name <= last {
			t.Errorf("%s comes after %s", p.Name, last)
		}
		last = p.Name
		if p.Scheme == nil || p.Timeout <= 0 || len(p.Facts) == 0 {
			t.Errorf("%s: scheme %v, timeout %v, %d facts", p.Name, p.Scheme, p.Timeout, len(p.Facts))
		}
		for _, f := range p.Facts {
			u, err := url.Parse(f.URL)
			if err != nil || u.Scheme != "https" || f.Says == "" || f.Read == "" {
				t.Errorf("%s: fact %+v", p.Name, f)
			}
		}
		// The horizon is the sum of the published waits, to within what rounding explains.
		sum := time.Duration(0)
		for _, r := range p.Retries {
			sum += r
		}
		if p.Name == "adyen" { // its last wait is repeated for thirty days
			sum = max(sum, p.Horizon)
		}
		if p.Horizon > 0 && len(p.Retries) > 0 && (p.Horizon < sum || p.Horizon > sum+15*time.Minute) {
			t.Errorf("%s: its waits add up to %v, its horizon is %v", p.Name, sum, p.Horizon)
		}
		if again, ok := providers.Named(p.Name); !ok || again.Name != p.Name {
			t.Errorf("%s is not found by its name", p.Name)
		}
	}
	if _, ok := providers.Named("nobody"); ok {
		t.Error("nobody is found")
	}
	changed := providers.Svix()
	changed.Retries[0] = time.Hour
	if providers.Svix().Retries[0] == time.Hour {
		t.Error("changing one value changes the next")
	}
}
