/* Everything works without this file, except copying and live updates. No inline handlers, no eval. */
(() => {
  const root = document.documentElement;
  root.classList.add('js');
  const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)];
  let timer;
  const say = m => { const e = $('#say'); e.textContent = m; clearTimeout(timer); timer = setTimeout(() => e.textContent = '', 6000); };

  document.addEventListener('click', e => {
    const b = e.target.closest('button,a'); if (!b) return;
    const d = b.dataset, text = d.copy ?? (d.copyFrom && $('#' + d.copyFrom)?.textContent);
    if (text) navigator.clipboard?.writeText(text).then(() => say('Copied.'), () => say('Your browser did not allow copying.'));
    // What is signed when it is asked for is fetched when it is asked for; a browser that does not let a copy wait for it goes there.
    if (d.copyAt && navigator.clipboard?.write && !e.ctrlKey && !e.metaKey && !e.shiftKey) {
      e.preventDefault();
      const fetched = fetch(b.href).then(r => r.ok ? r.text() : Promise.reject()).then(h => new Blob([new DOMParser().parseFromString(h, 'text/html').getElementById(d.copyAt).textContent], { type: 'text/plain' }));
      navigator.clipboard.write([new ClipboardItem({ 'text/plain': fetched })]).then(() => say('Copied, signed now.'), () => location.assign(b.href));
    }
    if ('live' in d) live(b.getAttribute('aria-pressed') !== 'true');
    const t = b.hash?.length > 1 && document.getElementById(b.hash.slice(1));
    if (t && t.matches('.tabs>section')) { // a tab, or a link to one: switch without the jump
      const tabs = t.parentNode; tabs.classList.add('on');
      for (let f = t.closest('details'); f; f = f.parentElement.closest('details')) f.open = true;
      $$(':scope>section', tabs).forEach(s => s.hidden = s !== t);
      $$('nav a', tabs).forEach(a => a.hash === b.hash ? a.setAttribute('aria-current', 'true') : a.removeAttribute('aria-current'));
      if (tabs.contains(b)) { e.preventDefault(); history.replaceState(null, '', b.hash); }
    }
  });

  document.addEventListener('submit', e => {
    const f = e.target;
    if ('zone' in f.dataset) f.elements.zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || '';
    if (f.method === 'get') for (const c of f.elements) c.disabled = !c.value && c.name; // keeps the address short; the server sends on to the same short form
    else { // one press is one act; the key in the form would make two of them one all the same
      if (f.dataset.sent) return e.preventDefault();
      f.dataset.sent = 1; e.submitter?.setAttribute('aria-busy', 'true');
    }
  });
  addEventListener('pageshow', () => {
    $$('form[method=get] :disabled').forEach(c => c.disabled = false);
    $$('form[data-sent]').forEach(f => delete f.dataset.sent); $$('[aria-busy=true]').forEach(b => b.removeAttribute('aria-busy'));
  });

  const count = f => { const n = $$('tbody :checked', f).length, c = $('[data-count]', f); if (c) c.textContent = n; };
  document.addEventListener('change', e => {
    const f = e.target.form; if (!f) return;
    if ('all' in e.target.dataset) $$('tbody [type=checkbox]', f).forEach(c => c.checked = e.target.checked);
    count(f);
  });

  const rows = () => $$('a[data-row]').filter(a => a.offsetParent);
  document.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input:not([type=checkbox],[type=radio]),select,textarea')) return;
    const l = rows(), i = l.indexOf(document.activeElement.closest('tr')?.querySelector('[data-row]')), k = e.key;
    if (k === 'j' || k === 'k') (l[i < 0 ? 0 : Math.min(l.length - 1, Math.max(0, i + (k === 'j' ? 1 : -1)))])?.focus();
    else if (k === 'x' && i >= 0) l[i].closest('tr').querySelector('[type=checkbox]')?.click();
    else if (k === 'r') (i >= 0 ? l[i].closest('tr').querySelector('button') : $('[data-replay]'))?.focus();
    else if (k === 'c') $('[data-copy-at],[data-copy-from]')?.click();
    else if (k === '/') { if ($('[data-search]')) { $('[data-search]').focus(); e.preventDefault(); } }
    else if (k === '?') $('#keys')?.togglePopover();
  });

  /* Live: the page is asked for again, and what changed is put into the elements marked data-live-part.
     It rests while a row is selected or the focus is inside one of them, and while the page is hidden.
     What was just asked for may not be seen at once, so after an act any page is followed for a while. */
  let every = 0, settled = 0, clock;
  const resting = () => document.hidden || $('[data-live-part] :checked') || document.activeElement?.closest('[data-live-part]');
  async function again() {
    clock = setTimeout(again, every); if (resting()) return;
    try {
      const r = await fetch(location.href, { headers: { accept: 'text/html' } }); if (!r.ok || r.redirected) return;
      const next = new DOMParser().parseFromString(await r.text(), 'text/html'); if (resting()) return;
      $$('[data-live-part]').forEach(old => { const now = next.getElementById(old.id); if (now && now.outerHTML !== old.outerHTML) old.replaceWith(document.adoptNode(now)); });
      if (!next.body.dataset.refresh && !$('[data-live]') && Date.now() > settled) clearTimeout(clock);
    } catch { /* the server is away; the old rows stay and the next round asks again */ }
  }
  function live(on) {
    $$('[data-live]').forEach(b => b.setAttribute('aria-pressed', on)); say(on ? 'Live updates are on.' : 'Live updates are off.');
    clearTimeout(clock); every = 3000; if (on) again();
  }
  document.addEventListener('DOMContentLoaded', () => {
    const { refresh, acted } = document.body.dataset;
    if (acted) settled = Date.now() + acted * 1000;
    if (refresh || acted) { every = (refresh || 2) * 1000; clock = setTimeout(again, every); }
    const t = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let f = t && t.closest('details'); f; f = f.parentElement.closest('details')) f.open = true;
  });
})();
