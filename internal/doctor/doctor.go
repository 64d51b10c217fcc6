// Package doctor looks at what the server stands on (its settings, the database, the disk, the
// clock, the network) and says in plain words what is wrong and what to do. It changes nothing and
// can run beside a server.
package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/config"
)

// Grade is how bad a finding is.
type Grade string

const (
	OK      Grade = "ok"
	Warning Grade = "warning" // it works, and will hurt some day
	Failure Grade = "failure" // events may be lost or the server cannot work
)

// Finding is one thing that was looked at.
type Finding struct {
	Subject string `json:"subject"`
	Grade   Grade  `json:"grade"`
	// Detail is what is there, and Advice what to do; "" where nothing is to be done.
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

// Examine looks at everything the configuration names. It always comes back with what it found: a
// database that cannot be reached is a finding.
func Examine(ctx context.Context, cfg config.Config) []Finding {
	findings := []Finding{settings(&cfg)}
	if path, isFile := cfg.SQLitePath(); isFile {
		findings = append(findings, file(ctx, path)...)
	} else {
		findings = append(findings, server(ctx, &cfg)...)
	}
	return append(findings, network(ctx, &cfg)...)
}

// settings says whether serve would start.
func settings(cfg *config.Config) Finding {
	if err := cfg.CheckServe(); err != nil {
		return Finding{"settings", Failure, "serve would not start.", err.Error()}
	}
	if len(cfg.Warnings) > 0 {
		return Finding{"settings", Warning, strings.Join(cfg.Warnings, "; ") + ".", "Correct or remove what has no effect."}
	}
	return Finding{Subject: "settings", Grade: OK, Detail: "serve would start with these."}
}

// lookedUp is a name that has existed for as long as names have.
const lookedUp = "example.com"

// network looks at the way to customers' servers.
func network(ctx context.Context, cfg *config.Config) []Finding {
	var found []Finding
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	began := time.Now()
	resolver := net.Resolver{PreferGo: true} // as deliveries look names up
	if _, err := resolver.LookupNetIP(ctx, "ip", lookedUp); err != nil {
		found = append(found, Finding{"names", Warning, "The name " + lookedUp + " cannot be looked up from here.",
			"Deliveries need a resolver: check /etc/resolv.conf and the firewall. In a closed network this may be as it should."})
	} else {
		found = append(found, Finding{Subject: "names", Grade: OK, Detail: fmt.Sprintf("%s was looked up in %d ms.", lookedUp, time.Since(began).Milliseconds())})
	}
	if len(cfg.EgressAllow) > 0 {
		found = append(found, Finding{"egress", Warning,
			fmt.Sprintf("WAYBILL_EGRESS_ALLOW opens %v to every tenant.", cfg.EgressAllow),
			"A customer can make Waybill send to these addresses. For your own services mark their tenant \"egress\": \"internal\" and use WAYBILL_EGRESS_ALLOW_INTERNAL."})
	} else {
		found = append(found, Finding{Subject: "egress", Grade: OK, Detail: "Deliveries go to public addresses only."})
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		if os.Getenv(name) != "" {
			found = append(found, Finding{"proxy", Warning, name + " is set and has no effect.",
				"Deliveries never follow it, because a proxy decides which addresses are reached."})
			break
		}
	}
	return found
}
