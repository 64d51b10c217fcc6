# The image holds the program, the certificates of public authorities, and nothing else: no shell,
# no package manager, no other user than the one that runs it.
#
#   docker build -t waybill .
#   docker run -p 8420:8420 -v waybill:/data -e WAYBILL_API_KEY=… waybill

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags="-s -w" -o /out/waybill ./cmd/waybill \
 && mkdir -p /out/data /out/etc/ssl/certs /out/tmp \
 && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
 && echo 'waybill:x:65532:65532::/data:/none' > /out/etc/passwd \
 && chown -R 65532:65532 /out/data /out/tmp

FROM scratch
COPY --from=build /out/ /
USER 65532:65532
WORKDIR /data
VOLUME /data
ENV WAYBILL_LISTEN=0.0.0.0:8420 WAYBILL_DATABASE_URL=sqlite:///data/waybill.db
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s CMD ["/waybill", "healthcheck"]
ENTRYPOINT ["/waybill"]
CMD ["serve"]
