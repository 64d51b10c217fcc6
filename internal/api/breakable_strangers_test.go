package api

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func (b *breakable) PutSignatureScheme(ctx context.Context, s outbox.SignatureScheme, now time.Time) (outbox.SignatureScheme, bool, error) {
	if err := b.failing(); err != nil {
		return outbox.SignatureScheme{}, false, err
	}
	return b.Store.PutSignatureScheme(ctx, s, now)
}

func (b *breakable) SignatureScheme(ctx context.Context, name string) (outbox.SignatureScheme, error) {
	if err := b.failing(); err != nil {
		return outbox.SignatureScheme{}, err
	}
	return b.Store.SignatureScheme(ctx, name)
}

func (b *breakable) SignatureSchemes(ctx context.Context) ([]outbox.SignatureScheme, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.SignatureSchemes(ctx)
}

func (b *breakable) DeleteSignatureScheme(ctx context.Context, name string) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.DeleteSignatureScheme(ctx, name)
}

func (b *breakable) PutEventType(ctx context.Context, name string, now time.Time, edit func(*outbox.EventType, bool) error) (outbox.EventType, bool, error) {
	if err := b.failing(); err != nil {
		return outbox.EventType{}, false, err
	}
	return b.Store.PutEventType(ctx, name, now, edit)
}

func (b *breakable) EventType(ctx context.Context, name string) (outbox.EventType, error) {
	if err := b.failing(); err != nil {
		return outbox.EventType{}, err
	}
	return b.Store.EventType(ctx, name)
}

func (b *breakable) EventTypes(ctx context.Context, after string, page outbox.Page) ([]outbox.EventType, error) {
	if err := b.failing(); err != nil {
		return nil, err
	}
	return b.Store.EventTypes(ctx, after, page)
}

func (b *breakable) DeleteEventType(ctx context.Context, name string) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.DeleteEventType(ctx, name)
}

func (b *breakable) CatalogueRevision(ctx context.Context) (int64, error) {
	if err := b.failing(); err != nil {
		return 0, err
	}
	return b.Store.CatalogueRevision(ctx)
}

func (b *breakable) ErasePayload(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) error {
	if err := b.failing(); err != nil {
		return err
	}
	return b.Store.ErasePayload(ctx, tenant, id)
}
