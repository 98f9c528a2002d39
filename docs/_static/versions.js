// A menu of the versions that lie beside this one. ../versions.json names their folders, the newest first; without it, as
// after `make docs`, there is no menu.
(async () => {
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const answer = await fetch(new URL("../versions.json", root)).catch(() => null);
  if (!answer?.ok) return;
  const page = location.href.slice(root.href.length);
  const menu = document.createElement("select");
  menu.className = "versions";
  menu.ariaLabel = "Version";
  for (const version of await answer.json()) {
    const url = new URL(`../${version}/`, root);
    menu.add(new Option(version, url, false, url.href === root.href));
  }
  menu.onchange = async () => {
    const same = new URL(page, menu.value); // a page that the other version may not have
    const found = await fetch(same, { method: "HEAD" }).catch(() => null);
    location.href = found?.ok ? same : menu.value;
  };
  document.querySelector(".sidebar-brand").after(menu);
})();
