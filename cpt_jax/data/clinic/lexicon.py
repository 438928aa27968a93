"""Bilingual tables of an invented clinic: drugs, tests, symptoms, operations.

Plain text tables, read by `cpt_jax.data.synthetic`; items end with the line or with " ; ". Every
term is written `French / English`; a French term starts with its gender and number (m, f, mp, fp),
`*` marks an aspirated h; an English term may start with its article. In sentences `[a|b]` is one
of the alternatives and `<2-9>` a number (`<5-15/5>`: in steps of 5). An indented line continues
the line above. English spelling is British, units are SI.
"""

SPECIALTIES = ("general", "cardiology", "oncology", "neurology", "nephrology", "infectious")

# key [= French / English] | doses unit | route | frequencies
DRUGS = """
paracetamol = paracétamol / paracetamol|500 1000 mg|po|tds qds
ibuprofen = ibuprofène / ibuprofen|200 400 mg|po|tds ; amlodipine|5 10 mg|po|od
ramipril|2.5 5 10 mg|po|od ; perindopril = périndopril / perindopril|2 4 8 mg|po|od
indapamide|1.5 mg|po|od ; metformin = metformine / metformin|500 850 1000 mg|po|bd tds
gliclazide|30 60 90 mg|po|od ; glargine = insuline glargine / insulin glargine|10 14 18 24 UI|sc|on
levothyroxine = lévothyroxine / levothyroxine|50 75 100 125 µg|po|od
omeprazole = oméprazole / omeprazole|20 40 mg|po|od
ondansetron = ondansétron / ondansetron|4 8 mg|po|bd ; colchicine|0.5 1 mg|po|bd
allopurinol|100 200 300 mg|po|od ; iron = sulfate ferreux / ferrous sulphate|80 160 mg|po|od
folic = acide folique / folic acid|5 mg|po|od ; tramadol|50 100 mg|po|tds
sertraline|50 100 150 mg|po|od ; racecadotril = racécadotril / racecadotril|100 mg|po|tds
cefazolin = céfazoline / cefazolin|1 2 g|iv|tds
metronidazole = métronidazole / metronidazole|500 mg|iv|tds ; phloroglucinol|80 160 mg|po|tds
furosemide = furosémide / furosemide|20 40 80 125 mg|po|od bd ; bisoprolol|1.25 2.5 5 10 mg|po|od
spironolactone|25 50 mg|po|od ; dapagliflozin = dapagliflozine / dapagliflozin|10 mg|po|od
aspirin = acide acétylsalicylique / aspirin|75 100 mg|po|od
ticagrelor = ticagrélor / ticagrelor|60 90 mg|po|bd ; clopidogrel|75 mg|po|od
atorvastatin = atorvastatine / atorvastatin|20 40 80 mg|po|on ; apixaban|2.5 5 mg|po|bd
amiodarone|200 mg|po|od ; enoxaparin = énoxaparine / enoxaparin|40 60 80 mg|sc|od bd
diltiazem|60 120 180 mg|po|od ; oxaliplatin = oxaliplatine / oxaliplatin|65 85 mg/m²|iv|q2w
capecitabine = capécitabine / capecitabine|1000 1250 mg/m²|po|bd
docetaxel = docétaxel / docetaxel|75 100 mg/m²|iv|q3w ; trastuzumab|6 8 mg/kg|iv|q3w
letrozole = létrozole / letrozole|2.5 mg|po|od ; pembrolizumab|200 400 mg|iv|q3w
carboplatin = carboplatine / carboplatin|400 450 500 mg|iv|q3w
pemetrexed = pémétrexed / pemetrexed|500 mg/m²|iv|q3w ; rituximab|375 mg/m²|iv|q3w
doxorubicin = doxorubicine / doxorubicin|50 60 mg/m²|iv|q3w
bortezomib = bortézomib / bortezomib|1 1.3 mg/m²|sc|qw
lenalidomide = lénalidomide / lenalidomide|10 15 25 mg|po|od
dexamethasone = dexaméthasone / dexamethasone|4 8 20 40 mg|po|od ; filgrastim|30 48 MUI|sc|od
gemcitabine|800 1000 mg/m²|iv|qw
morphine = sulfate de morphine / morphine sulphate|10 20 30 mg|po|bd
leuprorelin = leuproréline / leuprorelin|3.75 11.25 mg|sc|q3m
abiraterone = abiratérone / abiraterone|500 1000 mg|po|od
levetiracetam = lévétiracétam / levetiracetam|250 500 1000 mg|po|bd ; lamotrigine|25 50 100 mg|po|bd
valproate = valproate de sodium / sodium valproate|200 500 mg|po|bd
levodopa = lévodopa-bensérazide / levodopa-benserazide|62.5 125 250 mg|po|tds
pramipexole|0.18 0.35 0.7 mg|po|tds
methylprednisolone = méthylprednisolone / methylprednisolone|500 1000 mg|iv|od
natalizumab|300 mg|iv|q4w ; fumarate = fumarate de diméthyle / dimethyl fumarate|120 240 mg|po|bd
sumatriptan|50 100 mg|po|prn ; propranolol|40 80 160 mg|po|bd ; pyridostigmine|30 60 mg|po|qds
baclofen = baclofène / baclofen|5 10 mg|po|tds ; topiramate|25 50 100 mg|po|bd
clonazepam = clonazépam / clonazepam|0.5 1 2 mg|po|on
prednisone = prednisone / prednisolone|10 20 40 60 mg|po|od ; tacrolimus|1 2 3 mg|po|bd
mycophenolate = mycophénolate mofétil / mycophenolate mofetil|500 1000 mg|po|bd
darbepoetin = darbépoétine alfa / darbepoetin alfa|20 40 60 µg|sc|qw
sevelamer = sévélamer / sevelamer|800 1600 mg|po|tds ; alfacalcidol|0.25 0.5 1 µg|po|od
bicarb = bicarbonate de sodium / sodium bicarbonate|500 1000 mg|po|tds
resin = polystyrène sulfonate de sodium / sodium polystyrene sulfonate|15 30 g|po|od
irbesartan = irbésartan / irbesartan|75 150 300 mg|po|od
tamsulosin = tamsulosine / tamsulosin|0.4 mg|po|on ; tolvaptan|45 60 90 mg|po|od
ketoprofen = kétoprofène / ketoprofen|50 100 mg|iv|tds
coamoxiclav = amoxicilline-acide clavulanique / co-amoxiclav|1 2 g|iv|tds ; ceftriaxone|1 2 g|iv|od
azithromycin = azithromycine / azithromycin|250 500 mg|po|od
gentamicin = gentamicine / gentamicin|160 240 320 mg|iv|od
piptazo = pipéracilline-tazobactam / piperacillin-tazobactam|4 g|iv|tds qds
vancomycin = vancomycine / vancomycin|1 1.5 g|iv|bd
isoniazid = isoniazide / isoniazid|200 300 mg|po|od
rifampicin = rifampicine / rifampicin|450 600 mg|po|od
ethambutol = éthambutol / ethambutol|800 1200 mg|po|od ; pyrazinamide|1 1.5 g|po|od
cloxacillin = cloxacilline / flucloxacillin|1 2 g|iv|qds
cotrimoxazole = cotrimoxazole / co-trimoxazole|800 1600 mg|po|tds ; salbutamol|2.5 5 mg|neb|qds
tiotropium|18 µg|inh|od ; pristinamycin = pristinamycine / doxycycline|1 g|po|tds
dolutegravir = dolutégravir / dolutegravir|50 mg|po|od
"""

# key = French / English | unit | normal range | high range | low range
LABS = """
crp = f CRP / CRP|mg/L|1-5|42-286|-
pct = f procalcitonine / procalcitonin|µg/L|0.02-0.1|0.8-18.0|-
wbc = mp leucocytes / white cell count|G/L|4.2-9.6|11.8-24.6|0.6-2.4
neut = mp neutrophiles / neutrophil count|G/L|2.1-6.8|8.9-19.5|0.1-0.9
hb = f hémoglobine / haemoglobin|g/dL|12.4-15.6|16.8-18.2|6.9-10.4
plt = fp plaquettes / platelet count|G/L|160-390|460-720|24-110
ferritin = f ferritinémie / ferritin|µg/L|40-220|480-1900|3-12
mcv = m VGM / MCV|fL|82-96|102-114|64-76
creat = f créatininémie / serum creatinine|µmol/L|58-96|132-620|-
egfr = m DFG estimé / estimated GFR|mL/min/1,73 m²|78-110|-|9-48
urea = f urée sanguine / blood urea|mmol/L|3.2-7.1|11.4-34.6|-
k = f kaliémie / serum potassium|mmol/L|3.6-4.8|5.6-7.1|2.4-3.1
na = f natrémie / serum sodium|mmol/L|136-143|148-156|121-131
ca = f calcémie corrigée / corrected calcium|mmol/L|2.22-2.54|2.81-3.62|1.72-2.05
phos = f phosphatémie / serum phosphate|mmol/L|0.85-1.35|1.72-2.64|-
pth = f parathormone / parathyroid hormone|ng/L|18-60|142-860|-
hco3 = mp bicarbonates / bicarbonate|mmol/L|23-27|-|12-18
alb = f albuminémie / serum albumin|g/L|36-46|-|14-28
uprot = f protéinurie / proteinuria|g/24 h|0.05-0.14|1.4-9.8|-
glucose = f glycémie / plasma glucose|mmol/L|4.1-5.8|11.2-24.5|-
hba1c = f HbA1c / HbA1c|%|4.8-5.7|7.4-11.6|- ; tsh = f TSH / TSH|mUI/L|0.6-3.2|12.0-86.0|-
uric = f uricémie / serum urate|µmol/L|210-350|480-690|-
bnp = m NT-proBNP / NT-proBNP|ng/L|40-180|1450-14800|-
trop = f troponine ultrasensible / high-sensitivity troponin|ng/L|3-12|148-9600|-
ddimer = mp D-dimères / D-dimer|µg/L|120-430|980-6400|- ; inr = m INR / INR||0.9-1.1|2.1-3.4|-
ldl = m LDL-cholestérol / LDL cholesterol|mmol/L|1.6-2.8|3.9-5.8|-
ldh = fp LDH / LDH|UI/L|140-220|390-1650|-
b2m = f bêta-2-microglobuline / beta-2 microglobulin|mg/L|1.1-2.2|3.6-9.8|-
cea = m ACE / CEA|µg/L|0.8-4.2|18-420|- ; ca153 = m CA 15-3 / CA 15-3|kUI/L|8-26|64-510|-
ca199 = m CA 19-9 / CA 19-9|kUI/L|6-30|210-4800|- ; psa = m PSA / PSA|µg/L|0.4-3.1|14-240|-
mprot = m pic monoclonal / monoclonal band|g/L|1-2|21-58|-
chains = fp chaînes légères kappa / kappa light chains|mg/L|4-18|240-2900|-
alt = fp ALAT / ALT|UI/L|12-38|96-480|-
bili = f bilirubine totale / total bilirubin|µmol/L|5-16|42-210|-
csfcells = f cellularité du LCR / CSF cell count|/mm³|1-4|12-38|-
csfprot = f protéinorachie / CSF protein|g/L|0.22-0.42|0.61-1.45|-
ck = f CPK / creatine kinase|UI/L|45-170|620-4800|-
b12 = f vitamine B12 / vitamin B12|pmol/L|180-520|-|70-130
achr = mp anticorps anti-RACh / acetylcholine receptor antibodies|nmol/L|0.1-0.3|3.4-28.0|-
vpa = f concentration résiduelle / trough level|mg/L|14-38|-|2-8
tacro = f tacrolémie résiduelle / tacrolimus trough|µg/L|6.1-9.4|12.8-19.6|2.2-3.9
cd4 = mp lymphocytes CD4 / CD4 count|/mm³|520-980|-|18-160 ; pao2 = f PaO2 / PaO2|mmHg|82-96|-|48-62
paco2 = f PaCO2 / PaCO2|mmHg|36-43|49-72|-
lactate = mp lactates / lactate|mmol/L|0.6-1.6|2.6-6.8|-
ggt = fp gamma-GT / gamma-GT|UI/L|14-48|160-720|-
"""

SYMPTOMS = """
fever = f fièvre / fever ; chills = mp frissons / chills
sweats = fp sueurs nocturnes / night sweats ; clammy = fp sueurs froides / cold sweats
fatigue = f asthénie / fatigue
weight = m amaigrissement / weight loss ; anorexia = f anorexie / loss of appetite
cough = f toux / cough ; sputum = fp expectorations purulentes / purulent sputum
wheeze = mp sifflements / wheezing ; haemoptysis = f hémoptysie / haemoptysis
pleuritic = f douleur basithoracique / pleuritic chest pain
dyspnoea = f dyspnée d'effort / exertional dyspnoea ; orthopnoea = f orthopnée / orthopnoea
chest = f douleur thoracique constrictive / crushing chest pain
palpitations = fp palpitations / palpitations ; syncope = f syncope / syncope
oedema = mp œdèmes des membres inférieurs / ankle swelling
sharp = f douleur thoracique positionnelle / positional chest pain
claudication = f claudication / claudication ; headache = fp céphalées / headache
photophobia = f photophobie / photophobia ; aura = f aura visuelle / visual aura
weakness = m déficit moteur / limb weakness ; aphasia = f aphasie / dysphasia
facial = f asymétrie faciale / facial droop
seizure = f crise tonicoclonique / tonic-clonic seizure ; bite = f morsure de langue / tongue biting
tremor = m tremblement de repos / rest tremor ; slowness = f bradykinésie / slowness of movement
falls = fp chutes / falls ; paraesthesia = fp paresthésies / paraesthesia
visual = f baisse d'acuité visuelle / visual loss ; diplopia = f diplopie / double vision
ptosis = m ptosis / ptosis ; dysphagia = f dysphagie / dysphagia
confusion = f confusion / confusion ; vertigo = mp vertiges / vertigo
foam = fp urines mousseuses / frothy urine ; haematuria = f hématurie / haematuria
oliguria = f oligurie / reduced urine output ; dysuria = fp brûlures mictionnelles / dysuria
pruritus = m prurit / itching ; cramps = fp crampes nocturnes / nocturnal cramps
flank = f douleur lombaire / flank pain ; graft = f douleur du greffon / graft tenderness
nausea = fp nausées / nausea ; vomiting = mp vomissements / vomiting
diarrhoea = f diarrhée / diarrhoea ; constipation = f constipation / constipation
rectal = fp rectorragies / rectal bleeding
biliary = f douleur de l'hypochondre droit / right upper quadrant pain
iliac = f douleur de la fosse iliaque droite / right iliac fossa pain
lump = m nodule palpable / palpable lump ; nodes = fp adénopathies / swollen lymph nodes
bone = fp douleurs osseuses / bone pain ; jaundice = m ictère / jaundice
back = f lombalgie / low back pain ; sciatica = f douleur radiculaire / radicular leg pain
thirst = m syndrome polyuropolydipsique / polyuria and polydipsia
cold = f frilosité / cold intolerance ; pallor = f pâleur / pallor
toe = f douleur du gros orteil / big toe pain ; groin = f tuméfaction inguinale / groin swelling
kneepain = fp gonalgies / knee pain ; stiffness = m dérouillage matinal / morning stiffness
mood = f tristesse de l'humeur / low mood ; insomnia = f insomnie / insomnia
redness = m placard érythémateux / spreading redness ; voiding = f dysurie / hesitancy
"""

# i = imaging (a report of its own), t = another test
PROCEDURES = """
cxr = i f radiographie thoracique / chest X-ray ; ctchest = i m scanner thoracique / chest CT
ctabdo = i m scanner abdominopelvien / CT of the abdomen and pelvis
cthead = i m scanner cérébral / CT head ; mrihead = i f IRM cérébrale / brain MRI
mrispine = i f IRM médullaire / spinal MRI
echo = i f échocardiographie transthoracique / transthoracic echocardiogram
usabdo = i f échographie abdominale / abdominal ultrasound
usrenal = i f échographie rénale / renal ultrasound
usgraft = i f échographie-Doppler du greffon / Doppler ultrasound of the graft
pet = i f TEP au 18F-FDG / FDG PET-CT ; mammo = i f mammographie / mammography
mripelvis = i f IRM prostatique / prostate MRI ; lspine = i f IRM lombaire / lumbar spine MRI
kneexray = i fp radiographies du genou / knee X-ray
usneck = i f échographie thyroïdienne / thyroid ultrasound ; ecg = t m ECG / ECG
holter = t m *Holter rythmique / 24-hour Holter monitoring
angio = t f coronarographie / coronary angiography
toe = t f échographie transœsophagienne / transoesophageal echocardiogram ; eeg = t m EEG / EEG
lp = t f ponction lombaire / lumbar puncture ; emg = t m électromyogramme / electromyography
colonoscopy = t f coloscopie / colonoscopy ; gastroscopy = t f fibroscopie gastrique / gastroscopy
biopsy = t f biopsie percutanée / core biopsy ; marrow = t m myélogramme / bone marrow aspirate
rbiopsy = t f ponction-biopsie rénale / renal biopsy ; cultures = t fp hémocultures / blood cultures
urine = t m ECBU / urine culture ; broncho = t f fibroscopie bronchique / bronchoscopy
spiro = t f spirométrie / spirometry ; abg = t mp gaz du sang artériel / arterial blood gases
usfoot = t f ponction articulaire / joint aspiration ; fundus = t m fond d'œil / fundoscopy
abpm = t f MAPA / ambulatory blood pressure monitoring
psych = t m entretien psychiatrique / psychiatric review
"""

# @key = the operation ; each further line a step, in order
OPERATIONS = """
@cholecystectomy = f cholécystectomie cœlioscopique / laparoscopic cholecystectomy
Dissection du triangle de Calot et exposition de l'artère cystique. / Calot's triangle was dissected
  and the cystic artery displayed.
Clips sur le canal cystique, cholangiographie [sans image d'addition|normale]. / The cystic duct was
  clipped; cholangiography [showed no filling defect|was normal].
Vésicule extraite dans un sac par l'orifice ombilical. / The gallbladder was delivered in a bag
  through the umbilical port.
@appendicectomy = f appendicectomie cœlioscopique / laparoscopic appendicectomy
Appendice [phlegmoneux|gangréneux], méso coagulé de proche en proche. / The appendix was
  [suppurative|gangrenous]; its mesentery was coagulated stepwise.
Ligature de la base par deux endoloops, puis section. / The base was secured with two endoloops and
  divided.
Lavage du cul-de-sac de Douglas par <500-1500/250> mL de sérum. / The pouch of Douglas was washed
  out with <500-1500/250> mL of saline.
@hernioplasty = f cure de hernie inguinale par plaque / mesh repair of the inguinal hernia
Dissection du sac [droit|gauche] et respect des nerfs ilio-inguinaux. / The [right|left] sac was
  dissected and the ilioinguinal nerve spared.
Pose d'une plaque de polypropylène de <10-15> cm, fixée sans tension. / A <10-15> cm polypropylene
  mesh was fixed without tension.
@angioplasty = f angioplastie coronaire avec stent actif / coronary angioplasty with a drug-eluting
  stent
Abord radial [droit|gauche] 6F, franchissement de la lésion par un guide souple. / Through
  [right|left] 6F radial access, the lesion was crossed with a soft wire.
Thromboaspiration puis implantation d'un stent de <2.5-4.0> x <16-38> mm. / After thrombus
  aspiration a <2.5-4.0> x <16-38> mm stent was deployed.
Flux TIMI [2|3] en fin de procédure. / Final flow was TIMI [2|3].
@valve = m remplacement valvulaire aortique / aortic valve replacement
Sternotomie médiane, circulation extracorporelle à <32-34> °C. / Median sternotomy and
  cardiopulmonary bypass at <32-34> °C.
Excision de la valve native et décalcification de l'anneau. / The native valve was excised and the
  annulus decalcified.
Bioprothèse de <19-25/2> mm implantée, clampage de <54-92> minutes. / A <19-25/2> mm bioprosthesis
  was seated; cross-clamp time <54-92> minutes.
@pacemaker = f implantation d'un stimulateur double chambre / dual-chamber pacemaker implantation
Ponction axillaire gauche, sonde ventriculaire au septum. / Left axillary puncture, ventricular lead
  on the septum.
Seuil ventriculaire <0.4-1.0> V, détection <7-14> mV, impédance <480-780> ohms. / Ventricular
  threshold <0.4-1.0> V, sensing <7-14> mV, impedance <480-780> ohms.
@colectomy = f colectomie carcinologique cœlioscopique / laparoscopic oncological colectomy
Ligature première des vaisseaux à leur origine avec curage ganglionnaire. / The vessels were ligated
  at their origin with lymphadenectomy.
Anastomose [iléotransverse|colorectale] mécanique, test à l'air négatif. / A stapled
  [ileotransverse|colorectal] anastomosis was made; the air test was negative.
@mastectomy = f mastectomie avec ganglion sentinelle / mastectomy with sentinel node biopsy
Repérage isotopique, <2-4> ganglions sentinelles axillaires [droits|gauches] prélevés. / <2-4>
  [right|left] axillary sentinel nodes were located with isotope and removed.
Exérèse de la glande en monobloc jusqu'au fascia pectoral. / The gland was removed en bloc down to
  the pectoral fascia.
@burrhole = f évacuation d'hématome sous-dural par trou de trépan / burr-hole evacuation of the
  subdural haematoma
Trou de trépan pariétal [droit|gauche], ouverture de la dure-mère en croix. / [Right|Left] parietal
  burr hole and cruciate durotomy.
Issue sous pression de <60-160/10> mL de sang [lysé|noirâtre]. / <60-160/10> mL of [altered|dark]
  blood drained under pressure.
Drain sous-dural laissé en place pour 48 heures. / A subdural drain was left for 48 hours.
@fistula = f création d'une fistule artérioveineuse / arteriovenous fistula creation
Dissection de la veine céphalique et de l'artère radiale au poignet. / The cephalic vein and the
  radial artery were dissected at the wrist.
Anastomose latéroterminale de <6-9> mm, frémissement perçu. / A <6-9> mm end-to-side anastomosis; a
  thrill was felt.
@stent = f montée de sonde double J / ureteric stent insertion
Opacification rétrograde : obstacle urétéral [droit|gauche]. / Retrograde contrast showed an
  obstruction of the [right|left] ureter.
Guide hydrophile puis sonde double J de <6-8> Ch, urines [claires|troubles]. / Over a hydrophilic
  wire, a <6-8> Ch stent was placed; [clear|turbid] urine drained.
@drain = m drainage pleural / intercostal chest drainage
Repérage échographique de la collection [droite|gauche]. / The [right|left] collection was marked
  under ultrasound.
Drain de <20-28/4> Ch au cinquième espace, issue de <300-1200/50> mL de pus. / A <20-28/4> Ch drain
  in the fifth space yielded <300-1200/50> mL of pus.
"""

# @key = unit ; then e examination, c course, p plan: sentences only this specialty writes, f family
SPECIALTY_SENTENCES = """
@general = m service de médecine interne / the general medical ward
e Abdomen souple et indolent, aires ganglionnaires libres. / Abdomen soft and non-tender, no
  lymphadenopathy.
e Poids <54-98> kg, IMC <20-34> kg/m², état général conservé. / Weight <54-98> kg, BMI <20-34>
  kg/m², general condition preserved.
c [L'appétit est revenu|La marche a été reprise] avec la kinésithérapeute dès le <2-5>e jour. /
  [Appetite returned|Mobility was regained] with physiotherapy from day <2-5>.
c L'éducation diététique et le passage de l'assistante sociale ont été réalisés. / Dietary education
  and a social work review were completed.
p Vaccinations antigrippale et antitétanique à mettre à jour. / Influenza and tetanus vaccinations
  to be updated.
p Poursuite de la kinésithérapie, <10-30/5> séances. / Physiotherapy to continue, <10-30/5>
  sessions.
f m diabète chez [la mère|le père] / diabetes in [the mother|the father]
f f ostéoporose maternelle / maternal osteoporosis
@cardiology = m service de cardiologie / the coronary care unit
e Bruits du cœur [réguliers|irréguliers], pouls fémoraux perçus, pas de souffle carotidien. / Heart
  sounds [regular|irregular], femoral pulses present, no carotid bruit.
e Dyspnée NYHA stade [II|III], périmètre de marche <100-600/50> mètres. / NYHA class [II|III],
  walking distance <100-600/50> metres.
c La télémétrie [est restée sinusale|a montré <2-9> extrasystoles ventriculaires par heure]. /
  Telemetry [showed sinus rhythm|showed <2-9> ventricular ectopics per hour].
c Le poids sec est fixé à <52-96> kg après une perte de <2-8> kg. / Dry weight was set at <52-96> kg
  after a loss of <2-8> kg.
p Réadaptation cardiaque en ambulatoire, régime peu salé. / Outpatient cardiac rehabilitation and a
  low-salt diet.
p Contrôle de la FEVG et discussion d'un défibrillateur à <3-6> mois. / Repeat ejection fraction and
  discussion of a defibrillator at <3-6> months.
f f mort subite d'un [oncle|frère] / sudden cardiac death of [an uncle|a brother]
f f coronaropathie paternelle avant 55 ans / paternal coronary disease before the age of 55
@oncology = m service d'oncologie médicale / the medical oncology unit
e Performance status OMS à <0-2>, chambre implantable propre. / WHO performance status <0-2>,
  implanted port clean.
e Surface corporelle <1.5-2.1> m², pas de neuropathie périphérique. / Body surface area <1.5-2.1>
  m², no peripheral neuropathy.
c La cure n° <1-6> a été administrée avec une toxicité de grade [1|2] seulement. / Cycle <1-6> was
  given with only grade [1|2] toxicity.
c La réunion de concertation pluridisciplinaire a validé [la chimiothérapie|une approche
  séquentielle]. / The tumour board approved [chemotherapy|a sequential approach].
p Scanner d'évaluation RECIST après <3-4> cures, consultation d'annonce faite. / RECIST evaluation
  after <3-4> cycles; breaking-bad-news visit held.
p Consultation d'oncogénétique et soins de support proposés. / Genetic counselling and supportive
  care offered.
f m cancer du sein chez [une tante|la grand-mère] / breast cancer in [an aunt|the grandmother]
f m syndrome de Lynch dans la fratrie / Lynch syndrome in a sibling
@neurology = m service de neurologie / the stroke and neurology unit
e Glasgow <13-15>/15, score NIHSS à <1-16>, nuque souple. / Glasgow coma scale <13-15>/15, NIHSS
  <1-16>, neck supple.
e Réflexes ostéotendineux [vifs|symétriques], sensibilité épicritique conservée, marche
  [élargie|hésitante]. / Tendon reflexes [brisk|symmetrical], light touch preserved, gait
  [broad-based|hesitant].
c La rééducation orthophonique et motrice a permis un score de Rankin à <1-4>. / Speech and motor
  rehabilitation led to a Rankin score of <1-4>.
c Le MMSE est coté à <19-30>/30 avec un ralentissement exécutif. / The MMSE was <19-30>/30 with
  executive slowing.
p Conduite automobile [suspendue|contre-indiquée] pendant <3-6> mois. / Driving
  [suspended|contraindicated] for <3-6> months.
p Bilan neuropsychologique et EDSS à refaire à <3-6> mois. / Neuropsychological testing and EDSS
  again at <3-6> months.
f f épilepsie chez [un cousin|la sœur] / epilepsy in [a cousin|the sister]
f f maladie d'Alzheimer du [père|grand-père] / Alzheimer's disease in the [father|grandfather]
@nephrology = m service de néphrologie / the renal unit
e Diurèse <300-2200/50> mL/24 h, bandelette : sang <1-3>+, protéines <1-3>+. / Urine output
  <300-2200/50> mL/24 h, dipstick blood <1-3>+, protein <1-3>+.
e Volémie [normale|augmentée], abord vasculaire [droit|gauche] avec bon thrill. / [Euvolaemic|Fluid
  overloaded], [right|left] vascular access with a good thrill.
c Une séance d'hémodialyse de <3-4> heures avec ultrafiltration de <1.2-3.4> L a été nécessaire. / A
  <3-4>-hour haemodialysis session with <1.2-3.4> L ultrafiltration was needed.
c Les néphrotoxiques ont été arrêtés et le sédiment urinaire relu. / Nephrotoxins were stopped and
  the urinary sediment reviewed.
p Information sur la dialyse péritonéale et la transplantation, typage HLA. / Teaching on peritoneal
  dialysis and transplantation, HLA typing.
p Restriction en potassium et apport protidique à <0.6-0.9> g/kg/j. / Potassium restriction and
  protein intake of <0.6-0.9> g/kg/day.
f f dialyse chez [la mère|un frère] / dialysis in [the mother|a brother]
f m syndrome d'Alport familial / familial Alport syndrome
@infectious = m service des maladies infectieuses / the infectious diseases ward
e Fréquence respiratoire <20-32>/min, tirage [absent|modéré], score CRB-65 à <0-3>. / Respiratory
  rate <20-32>/min, [no|moderate] recession, CRB-65 score <0-3>.
e Point d'appel [cutané|respiratoire|urinaire], qSOFA à <0-2>. / Source of infection
  [skin|respiratory|urinary], qSOFA <0-2>.
c L'antibiothérapie a été désescaladée au <2-5>e jour après réception de l'antibiogramme. /
  Antibiotics were narrowed on day <2-5> once sensitivities were known.
c L'oxygénothérapie à <1-6> L/min a été sevrée, isolement [gouttelettes|air] levé. / Oxygen at <1-6>
  L/min was weaned and [droplet|airborne] isolation lifted.
p Durée totale d'antibiothérapie : <7-42/7> jours. / Total duration of antibiotics: <7-42/7> days.
p Sérologie VIH et vaccination antipneumococcique proposées. / HIV serology and pneumococcal
  vaccination offered.
f f tuberculose traitée chez [un oncle|le grand-père] / treated tuberculosis in [an uncle|the
  grandfather]
f m asthme de l'enfance dans la fratrie / childhood asthma in a sibling
"""

COMPLICATIONS = """
f infection urinaire nosocomiale / a hospital-acquired urinary infection ; m iléus / an ileus
f rétention aiguë d'urine / acute urinary retention ; f confusion nocturne / nocturnal delirium
f veinite sur cathéter / cannula-site phlebitis ; f poussée hypertensive / a hypertensive episode
f hypokaliémie / hypokalaemia ; f toxidermie / a drug rash
"""

OLD_OPERATIONS = """
f amygdalectomie / tonsillectomy ; f cure de varices / varicose vein surgery
f cholécystectomie / cholecystectomy ; f chirurgie de la cataracte / cataract surgery
f arthroscopie du genou / knee arthroscopy ; f prothèse totale de hanche / total hip replacement
f ostéosynthèse du poignet / wrist fixation ; f thyroïdectomie partielle / partial thyroidectomy
"""

# key = French wordings / English wordings, one of them kept through a note
ROUTES = """
po = per os|par voie orale|PO / orally|by mouth|PO
iv = par voie intraveineuse|en IV|IV / intravenously|IV|IV
sc = par voie sous-cutanée|en SC|SC / subcutaneously|SC|SC
neb = en nébulisation / by nebuliser ; inh = par voie inhalée / by inhaler
"""
FREQUENCIES = """
od = une fois par jour|le matin|1 fois/j / once daily|in the morning|OD
on = au coucher|le soir|1 fois/j le soir / at bedtime|in the evening|nocte
bd = deux fois par jour|matin et soir|2 fois/j / twice daily|morning and evening|BD
tds = trois fois par jour|matin, midi et soir|3 fois/j / three times daily|every 8 hours|TDS
qds = quatre fois par jour|toutes les 6 heures|4 fois/j / four times daily|every 6 hours|QDS
prn = à la demande|en cas de crise|si besoin / as required|for attacks|PRN
qw = une fois par semaine / once weekly ; q2w = toutes les 2 semaines / every 2 weeks
q3w = toutes les 3 semaines / every 3 weeks ; q4w = toutes les 4 semaines / every 4 weeks
q3m = tous les 3 mois / every 3 months
"""
