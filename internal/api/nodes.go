package api

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// nodesView is who works on what.
type nodesView struct {
	Data      []nodeView `json:"data"`
	Shards    []*int     `json:"shards" doc:"Of each of the 256 shards the owner's place in data, from 0; null: no node owns it"`
	Ownerless int        `json:"ownerless" doc:"Shards that no node owns"`
}

type nodeView struct {
	ID               string  `json:"id"`
	Name             string  `json:"name" doc:"Of its machine"`
	Version          string  `json:"version"`
	StartedAt        stamp   `json:"started_at"`
	Draining         bool    `json:"draining"`
	Beat             int64   `json:"beat" doc:"Counts its heartbeats, one a second"`
	SeenAt           *stamp  `json:"seen_at" doc:"When it last reported, every five seconds; null: not yet"`
	Silent           bool    `json:"silent" doc:"It has not reported for 15 s"`
	Shards           int     `json:"shards"`
	InFlight         int     `json:"in_flight"`
	MaxInFlight      int     `json:"max_in_flight"`
	PerSecond        float64 `json:"attempts_per_second"`
	OldestRunnableMS float64 `json:"oldest_runnable_ms" doc:"For how long the delivery that could run for longest has waited"`
}

// silentAfter is three reports missed.
const silentAfter = 15 * time.Second

func viewCluster(c *outbox.Cluster, now time.Time) nodesView {
	view := nodesView{Data: []nodeView{}, Shards: make([]*int, 0, len(c.Shards))}
	place := map[outbox.NodeID]int{}
	for i := range c.Nodes {
		place[c.Nodes[i].NodeBeat.Node] = i
		n := &c.Nodes[i]
		view.Data = append(view.Data, nodeView{
			ID: n.NodeBeat.Node.String(), Name: n.Name, Version: n.Version, StartedAt: stamp(n.StartedAt), Draining: n.Draining, Beat: n.Beat,
			SeenAt: stampOf(n.At), Silent: now.Sub(n.At) > silentAfter, Shards: n.Shards, InFlight: n.InFlight, MaxInFlight: n.MaxInFlight,
			PerSecond: n.PerSecond, OldestRunnableMS: millis(n.OldestRunnable),
		})
	}
	for _, s := range c.Shards {
		at, owned := place[s.Node]
		if !owned {
			view.Ownerless++
			view.Shards = append(view.Shards, nil)
			continue
		}
		view.Shards = append(view.Shards, &at)
	}
	return view
}

func (a *API) nodes(q *request) (*answer, error) {
	c, err := a.cfg.Store.Cluster(q.Context())
	if err != nil {
		return nil, err
	}
	return ok(viewCluster(&c, q.now))
}
