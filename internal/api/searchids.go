package api

import (
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobs looks for a replay, a cancellation or an erasure.
func (s *searching) jobs() error {
	text := strings.ToLower(s.text)
	var id outbox.JobID
	var kind outbox.JobType
	if replay, err := outbox.ParseReplayID(text); err == nil {
		id, kind = outbox.JobID(replay), outbox.JobReplay
	} else if cancellation, err := outbox.ParseCancellationID(text); err == nil {
		id, kind = outbox.JobID(cancellation), outbox.JobCancellation
	} else if erasure, err := outbox.ParseErasureID(text); err == nil {
		id, kind = outbox.JobID(erasure), outbox.JobErasure
	} else {
		return nil
	}
	job, err := s.a.cfg.Store.Job(s.q.Context(), s.tenant.TenantRef, []outbox.JobType{kind}, id)
	if err != nil {
		return err
	}
	s.add(foundView{Type: string(kind), ID: text, Tenant: job.TenantKey, Title: string(kind) + " by " + job.CreatedBy + ", " + string(job.State), By: "id"})
	return nil
}

// sources looks for an inbound source by its id or its name.
func (s *searching) sources() error {
	var found outbox.Source
	by := "id"
	if id, err := outbox.ParseSourceID(strings.ToLower(s.text)); err == nil {
		rows, err := s.a.cfg.Store.Sources(s.q.Context(), id.Before(), outbox.Page{Limit: 1, Ascending: true})
		if err != nil || len(rows) == 0 || rows[0].ID != id {
			return err
		}
		found = rows[0]
	} else if outbox.ValidSourceName(s.text) {
		by = "name"
		if found, err = s.a.cfg.Store.Source(s.q.Context(), s.text); err != nil {
			return err
		}
	} else {
		return nil
	}
	if s.tenant.ID == 0 || s.tenant.ID == found.Tenant.ID {
		s.add(foundView{Type: "source", ID: found.Name, Tenant: found.TenantKey, Title: found.Provider + " at /in/" + found.Name, By: by})
	}
	return nil
}

// holders looks for a key of the API, or with a tenant for a session of its portal, without one
// for an operator's. Who may not list them does not find them either.
func (s *searching) holders() error {
	if !s.q.who.May(ScopeAdmin) {
		return nil
	}
	store, ctx, text := s.a.cfg.Store, s.q.Context(), strings.ToLower(s.text)
	one := outbox.Page{Limit: 1, Ascending: true}
	if id, err := outbox.ParseKeyID(text); err == nil {
		keys, err := store.Keys(ctx, outbox.KeyQuery{Tenant: s.tenant.TenantRef, After: id.Before()}, one)
		if err == nil && len(keys) == 1 && keys[0].ID == id {
			s.add(foundView{Type: "key", ID: text, Tenant: keys[0].TenantKey, Title: keys[0].Name, By: "id"})
		}
		return err
	}
	if id, err := outbox.ParseSessionID(text); err == nil {
		sessions, err := store.Sessions(ctx, s.tenant.TenantRef, id.Before(), one)
		if err == nil && len(sessions) == 1 && sessions[0].ID == id {
			s.add(foundView{Type: "session", ID: text, Tenant: sessions[0].TenantKey, Title: "made by " + sessions[0].CreatedBy, By: "id"})
		}
		return err
	}
	return nil
}
