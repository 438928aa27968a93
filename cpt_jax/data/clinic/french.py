"""Sentences of the invented clinic in French: what each section of a note says.

Read by `cpt_jax.data.synthetic`. `## name: heading | heading` opens a section; `>` starts a
sentence, `?` one that may be left out, `|` another wording of the sentence above it. `{slot}` is
filled from the case (`{dx.un}`: the disease with its indefinite article), `[a|b]` is one of the
alternatives, `<2-9>` a number. An indented line continues the line above.
A term's other forms agree with it in gender and number: `{dx.e}` is the ending of a participle
("", e, s, es), `{dx.a}` a or ont, `{dx.est}` est or sont.
"""

SECTIONS = r"""
## letterhead:
> {hospital}, {unit}. Le {date}. [Patient{e}|Concerne] : {M}, né{e} le {birth}, dossier {ipp}.
| {hospital} - {unit} - {date}\n{M}, {age} ans, né{e} le {birth} (IPP {ipp}).
| {M}, {age} ans, dossier {ipp}, séjour débuté le {date}, {unit}, {hospital}.
## reason: Motif d'hospitalisation | Motif d'admission | Motif
> {M}, {age} ans, [est hospitalisé{e}|est admis{e}|a été pris{e} en charge] pour {dx.un}.
| {le}, {age} ans, est adressé{e} par {gp} pour la prise en charge {dx.de_un}.
| {dx.un} [motive|justifie] l'hospitalisation de {M}, {age} ans.
| Patient{e} de {age} ans [hospitalisé{e} en urgence|admis{e} dans le service] pour {dx.bare}.
? {il} présente depuis {dur} {sx}.
| Le tableau associe {sx}, et évolue depuis {dur}.
## history: Antécédents | Antécédents médicaux et chirurgicaux
> [On retient|On note|Notons] {como}.
| {le} est suivi{e} pour {como}.
| Sur le plan médical : {como}.
? Sur le plan chirurgical : {oldop.bare} en {opyear}.
| {oldop.bare} il y a <3-40> ans.
? Dernier bilan il y a {delay} : {normlab}[, sans particularité|].
? Pas d'antécédent [connu|personnel] {nodx.de}.
## home: Traitement habituel | Traitement à l'entrée
> À domicile, {il} prend {homerx}.
| {homerx}.
? L'observance est [bonne|correcte|irrégulière][, selon l'entourage|, selon le pharmacien|].
| Pas d'automédication [retrouvée|signalée][ en dehors de tisanes|].
## habits: Mode de vie | Mode de vie et antécédents familiaux
> {job}, {living}.
| {le} {living}. Profession : {job}.
? Tabagisme [sevré|actif] estimé à <5-48> paquets-années.
| Pas de tabac, consommation d'alcool [occasionnelle|modérée|nulle].
| Ancien{ne} fumeu{se}, environ <5-40> paquets-années.
? Dans la famille, on note {family}.
| Antécédent familial : {family}.
## allergy: Allergies
> {allergy}.
## story: Histoire de la maladie
> Le début remonte à {dur}, avec {sx}.
| {le} [rapporte|décrit|signale] {sx} depuis {dur}.
| {il} consulte {gp} devant {sx}, d'aggravation [progressive|rapide] sur {dur}.
? {sy.le} {sy.refl} [majoré{sy.e}|aggravé{sy.e}] [malgré|sous] {drugname.bare}.
| {sy.le} {sy.est} [devenu{sy.e} gênant{sy.e}|maintenant quotidien{sy.ne}].
? [Il n'y a pas|On ne retrouve pas] {nosx}.
| {le} ne rapporte ni {nox.bare} ni {nox2.bare}.
| {il} ne signale pas {nosx}.
? Devant ce tableau, {gp} [demande un avis spécialisé|l'adresse aux urgences|organise l'admission].
| Une première consultation, le {before}, avait conduit à prescrire {drugname.bare}.
## exam: Examen clinique | Examen à l'entrée | Examen
> {vitals}.
| À l'entrée : {vitals}.
| Constantes : {vitals}.
> On [retrouve|note|constate] {signs}.
| L'examen [met en évidence|retrouve] {signs}.
? {exam_s}
? Pas {nosx}.
| {il} ne présente pas {nosx}.
? Le reste de l'examen [est sans particularité|clinique est normal].
## labs: Biologie | Examens biologiques | Bilan biologique
> {labs}.
| Le bilan [retrouve|montre] : {labs}.
| À l'admission : {labs}.
? [En revanche|Par ailleurs], {normlab}.
| Le reste du bilan est [normal|sans anomalie notable], dont {normlab}.
## imaging: Imagerie et explorations | Examens complémentaires | Explorations
> {proc.le} du {date} {proc.met} en évidence {finding.un}.
| {proc.bare} [du {date}|réalisé{proc.e} ce jour] : {finding.bare}.
? {morefound}
? Il n'y a pas d'argument pour {nodx.un}.
| {nodx.un} {nodx.a} pu être écarté{nodx.e}.
## course: Évolution | Évolution dans le service | Prise en charge et évolution
> {le} a [bénéficié d'un traitement par|reçu] {drug}[, bien toléré|, avec une bonne tolérance|].
| Un traitement par {drug} a été [instauré|débuté] dès [l'admission|le premier jour].
? {opsentence}
? {course_s}
? L'évolution a été [favorable|lentement favorable], avec régression {sy.du} en <2-8> jours.
| {sy.le} {sy.a} [peu à peu|rapidement] [régressé|cédé] sous {drugname.bare}.
? Sur le plan biologique, {labtrend}.
? {change}.
? Le séjour a été [compliqué|marqué] par {complication.un}, [vite
  résolu{complication.e}|traité{complication.e} sans séquelle].
| Aucune complication [n'est survenue|infectieuse ni thrombotique n'est à déplorer].
## outcome: Conclusion | Au total | Synthèse
> {dx.bare} chez {un} patient{e} de {age} ans, d'évolution favorable sous {drugname.bare}.
| {M}, {age} ans, a donc été hospitalisé{e} pour {dx.un}.
| Il s'agit donc {dx.de_un}, [confirmé{dx.e}|documenté{dx.e}] par {proc.le}, chez {M}.
? À la sortie, {il} ne présente plus {gone}.
? Retour à domicile le {dateout}[, accompagné{e}|, avec passage infirmier|, en ambulance].
## outrx: Traitement de sortie | Ordonnance de sortie
> {rxlist}
## followup: Suivi | Suivi et surveillance | Conduite à tenir
> Consultation avec {dr} dans {delay}[, avec {proc.un} de contrôle|].
| {M} sera revu{e} par {dr} dans {delay}, avec {proc.un} de contrôle.
? {plan_s}
? Contrôle {labname.du} dans {delay}.
? En cas de récidive {sy.du}, [recontacter le service|consulter en urgence].
? Rappel : {allergy}.
## sign:
> {drname}, [praticien hospitalier|chef de clinique|médecin du service].
| [Validé|Dicté|Relu] par {dr}.
## greeting:
> {hospital}, le {date}. [Cher confrère|Chère consœur|Cher ami], merci de m'avoir adressé {M}, {age}
  ans.
| Le {date}. [Cher confrère|Chère consœur], j'ai vu ce jour en consultation {M}, né{e} le {birth}.
## letter:
> {le} consulte pour {dx.un} évoluant depuis {dur}.
| {il} est suivi{e} pour {dx.un}, [diagnostiqué{dx.e}|découvert{dx.e}] par {proc.le}.
? {il} se plaint actuellement surtout {sy.du}.
| Les symptômes actuels sont {sx}.
## advice: Avis | Conclusion
> [Je propose|Je suggère] de poursuivre {drug}.
| Pour {ref.ce}, le traitement associe {rx}.
? {change}.
? {plan_s}
? Je reverrai {M} dans {delay} avec {proc.un} et un contrôle {labname.du}.
| Un contrôle {labname.du} est prévu dans {delay}.
## closing:
> [Bien confraternellement|Bien cordialement|Confraternellement], {drname}.
| Avec mes remerciements, {drname}, {unit}.
## filmhead:
> {hospital}, {film.bare} du {date}. {M}, {age} ans, dossier {ipp}.
| Compte rendu : {film.bare}, {date}. Patient{e} : {M}, né{e} le {birth}.
## indication: Indication
> Bilan {ref.de} ; {sx1} depuis {dur}.
| Suspicion {ref.de}, {sx1} depuis {dur}. [Recherche de complication.|]
## technique: Technique
> Acquisition [standard|multiplanaire], [avec|sans] injection de produit de contraste.
| Comparaison à l'examen du {before}. [Qualité diagnostique satisfaisante.|Examen un peu bougé.]
## film: Résultat | Description
> On visualise {filmfinding.un}.
| {filmfinding.un}, [stable{filmfinding.s}|majoré{filmfinding.e}|non vu{filmfinding.e}] à l'examen
  du {before}.
? Pas d'argument en faveur {nodx.de_un}.
| On ne retrouve pas de signe {nodx.de}.
? [Pas d'anomalie osseuse suspecte.|Pas d'épanchement.|Structures médianes en place.]
? [Les autres structures explorées sont sans particularité.|Absence d'adénomégalie.]
## filmconclusion: Conclusion
> Aspect compatible avec {dx.un}.
| {filmfinding.un}, en faveur {ref.de_un}.
? À confronter [à la clinique|aux données biologiques] ; contrôle dans {delay}.
## ophead: Compte rendu opératoire
> {op.bare} le {date}. Opérateur : {dr}. {M}, {age} ans. Indication : {dx.bare}.
| {date} : {op.bare} chez {M}, {age} ans, pour {dx.un}. Opérateur : {dr}.
## anaesthesia: Anesthésie et installation
> Anesthésie [générale|locorégionale], [décubitus dorsal|installation en décubitus latéral].
| Sous anesthésie [générale|locale avec sédation], antibioprophylaxie, champs stériles.
? Check-list : {allergy}.
## steps: Intervention | Gestes réalisés
> {steps}
? Hémostase soigneuse, pertes sanguines de <20-350/10> mL. Pansement sec.
| Durée <25-180/5> minutes, compte de compresses exact.
## aftercare: Suites et consignes
> {drug} [pendant <2-10> jours|en postopératoire]. Contrôle {labname.du} le lendemain.
| Surveillance {sy.du}, reprise {drugname.de} à J<1-5>. Consultation avec {dr} dans {delay}.
? Suites attendues simples ; sortie prévue le {dateout}.
? En cas {complication.de}, appeler [l'interne de garde|le bloc].
## nursing: [Transmissions|Transmissions infirmières|Note infirmière] du {date}
> <6-23> h <10-55/5> : {M}, [calme|fatigué{e}|souriant{e}|un peu anxieu{se2}]. {vitals2}.
| Tour de <6-23> h. {M} [dort|est réveillé{e}|est au fauteuil]. {vitals2}.
> Pansement [refait|propre et sec], [aide partielle|aide totale|seul{e}] à la toilette.
| Diurèse <400-1900/50> mL, [selles ce jour|pas de selles depuis <2-4> jours].
| A mangé [la moitié|les trois quarts|la totalité] du repas, hydratation [surveillée|correcte].
| Visite de la famille, [moral bas|moral correct], inquiétude sur {ref.le}.
? EVA à <0-8>/10, {drugname.bare} donné à <7-21> h[, efficace|, peu efficace|].
| {il} ne se plaint pas {nosx1}. {drug}, [dernière prise à <6-22> h|pris comme prescrit].
| Prévenir {dr} [en cas {sy.de}|si la température dépasse 38,5 °C]. Surveillance {labname.du}.
## scripthead: Ordonnance
> {drname}, {hospital}, le {date}. {M}, {age} ans.
| {unit}, {hospital}. Le {date}. Pour {M}, né{e} le {birth}.
## script:
> {rxlist}
## scriptadvice: Remarques
> Traitement {ref.de_un}, à renouveler <1-6> fois.
| Quantité suffisante pour {delay}. Indication : {dx.bare}.
? [Ne pas interrompre sans avis médical.|À prendre au cours des repas.|Bilan à J<7-30>.]
? {allergy}.
## labhead: Compte rendu de biologie médicale
> {M}, né{e} le {birth}. Prélèvement du {date} à <6-18> h <10-55/5>, {unit}.
| Laboratoire, {hospital}. Dossier {ipp}, {M}, {age} ans. Prélevé le {date}.
## labtable: Résultats
> {labtable}
## labcomment: Commentaire
> Résultats compatibles avec {dx.un}. [À contrôler sous <24-72/24> heures.|]
| Anomalies attendues dans le cadre {ref.de_un}. [{dr} prévenu par téléphone.|À suivre.]
? Interférence possible liée à la prise {drugname.de}.
## dayhead:
> {M}, {age} ans, [hospitalisé{e} pour|suivi{e} pour] {dx.un}.
| {unit} : {M}, {age} ans, {dx.bare}.
## day: J{day} ({date})
> {M} [va mieux|se lève|reste alité{e}|a bien dormi]. {vitals2}. Pas {nosx1}.
| {sy.le} {sy.est} [moins marqué{sy.e}|en régression|stable{sy.s}]. {vitals2}.
| {vitals2}. À l'examen : {sign.bare}. Pas {nosx1}.
? {labtrend}.
| {change}.
| {drug} à poursuivre ; {ref.bare} en voie d'amélioration.
| {course_s}
## visit: [Consultation|Visite de suivi|Consultation de contrôle] du {date}
> {M} est revu{e} pour {ref.le}[, {delay} après la sortie|, dans le cadre du suivi|].
| {il} revient dans le cadre du suivi {ref.du}.
? Depuis la dernière visite, {il} signale {sy.un}, sans {nox.bare}.
| {il} n'a plus {gone}. La tolérance {drugname.de} est [bonne|médiocre|excellente].
> {vitals2}. L'examen retrouve {sign.un}.
| {exam_s} {vitals2}.
> {labtrend}.
| Biologie du jour : {labs}.
? {proc.le} {proc.met} en évidence {finding.un}, [en régression|stable{finding.s}].
? {nodx.un} {nodx.a} été recherché{nodx.e} et écarté{nodx.e}.
> {change}.
| Le traitement comporte {rx}.
? {plan_s}
? Prochaine visite dans {delay} avec {dr}.
## results: Biologie du {date}
> {labtable}
? {labtrend}.
## study: [Examen|Exploration] du {date}
> {proc.bare} : {finding.bare}. Indication : suivi {ref.de}.
| {proc.bare}, {finding.bare}, [stable{finding.s}|en régression]. Pas d'argument pour {nodx.un}.
## synthesis: Synthèse du dossier
> {dx.bare}, pris{dx.e} en charge depuis le {datein} par {gp} puis {dr}, chez {un} patient{e} ayant
  pour antécédents {como}.
? {allergy}.
? Symptôme résiduel : {sy.bare}. Contrôle {labname.du} attendu.
## more:
> {proc.le} {proc.a} complété le bilan[ et révélé|, avec] {finding.un}.
| {proc.bare} : {finding.bare}.
## opsentence:
> {op.un} {op.a} été réalisé{op.e} le {date}[ par {dr}|], sans incident.
## labtrend:
> {labname.le} {labname.est} passé{labname.e} de {old} à {new}
| {labname.bare} à {new}, contre {old} [auparavant|au précédent contrôle]
## raise:
> Augmentation {drugname.de} de {dose} à {dose2}
| La dose {drugname.de} est portée de {dose} à {dose2}
## lower:
> Diminution {drugname.de} de {dose} à {dose2}
| La dose {drugname.de} est réduite de {dose} à {dose2}
## keep:
> Poursuite {drugname.de} à la même posologie
| Pas de modification {drugname.de}
## comorbidity:
> {c.un} depuis {year}[, traité{c.e} par {cdrug}|, sous {cdrug}|]
| {c.un} connu{c.e} depuis {year}
## vitals:
> TA {sys}/{dia} mmHg, FC {hr}/min, SpO2 {spo2} % en air ambiant, température {temp} °C
| température {temp} °C, pression artérielle {sys}/{dia} mmHg, pouls {hr}/min, saturation {spo2} %
## vitals2:
> TA {sys}/{dia}, FC {hr}/min, T {temp} °C
| constantes : {temp} °C, {sys}/{dia} mmHg, {hr}/min
| T {temp} °C, SpO2 {spo2} %, pouls {hr}/min
## allergy_kind:
> pas d'allergie médicamenteuse connue
| aucune allergie connue
| allergie [à la pénicilline|aux sulfamides|à l'iode|à la codéine] ([urticaire|éruption|choc en
  <1985-2010>])
| intolérance [au tramadol|aux AINS|au latex] ([nausées|prurit|œdème de Quincke])
## job:
> enseignant{e} [retraité{e}|en activité]
| employé{e} de [mairie|banque|bureau]
| agent d'entretien
| [infirmi{ere}|aide-soignant{e}] retraité{e}
| artisan [menuisier|boulanger|peintre] à la retraite
| comptable
| exploitant{e} agricole
## living:
> vit seul{e} [en appartement|en maison de plain-pied]
| vit avec [{spouse}|ses enfants|un de ses fils]
| vit en [résidence autonomie|EHPAD|couple à la campagne]
"""

LASTNAMES = (
    "Lefèvre Garnier Moreau Chevallier Rousseau Perrin Dufour Marchand Aubry Colin Meunier Picard"
    " Fontaine Barbier Renaud Vasseur Lacroix Noël Guérin Besson Tessier Blanchet Hamel Carlier"
    " Delmas Pruvost Jacquet Maillard Rivière Langlois Poulain Courtois Hébert Ferrand Brunet"
    " Legros Vidal Monnier Dupuis Charpentier"
)
HOSPITALS = (
    "Centre hospitalier Saint-Aubin|Hôpital des Tilleuls|Clinique du Val-Fleuri|CHU de Montreval"
    "|Hôpital Jeanne-Bardin|Centre hospitalier de la Haute-Lande|Institut Rosemonde"
    "|Polyclinique des Trois-Ponts"
)
MONTHS = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
NUMBERS = "deux trois quatre cinq six sept huit neuf dix onze douze"
UNITS = {"day": ("jour", "jours"), "week": ("semaine", "semaines"), "month": ("mois", "mois")}
